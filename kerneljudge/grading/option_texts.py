"""Options of the command line that are given as text: limits, tier and rules."""

from __future__ import annotations

from typing import cast

from kerneljudge.cli.output import BadUsage
from kerneljudge.records import RulesRecord
from kerneljudge.terms.choices import checked_tier
from kerneljudge.terms.limits import parse_limits
from kerneljudge.terms.rules import parse_rules

__all__ = ["limits_given", "rules_given", "tier_given"]


def limits_given(text: str) -> dict[str, float] | None:
    """Parse the value of ``--limits``; ``None`` where it is empty. Raises ``BadUsage``."""
    try:
        return parse_limits(text) or None
    except ValueError as error:
        raise BadUsage(str(error)) from error


def tier_given(text: str) -> str:
    """Return the value of ``--tier``. Raises ``BadUsage`` where there is no such tier."""
    try:
        return checked_tier(text)
    except ValueError as error:
        raise BadUsage(str(error)) from error


def rules_given(text: str) -> RulesRecord | None:
    """Parse the value of ``--rules``; ``None`` where it is empty. Raises ``BadUsage``."""
    try:
        return cast(RulesRecord, parse_rules(text).to_dict()) or None
    except ValueError as error:
        raise BadUsage(str(error)) from error
