"""The options of grading that all candidates of a command share."""

from __future__ import annotations

from dataclasses import dataclass

from kerneljudge.grading.option_texts import limits_given, rules_given
from kerneljudge.requests import SubmissionOptions

__all__ = ["GradingOptions"]


@dataclass(frozen=True)
class GradingOptions:
    """The options of grading, for all candidates. ``None`` leaves an option to the service, or to the default."""

    device: str | None = None
    size: str | None = None
    precision: str | None = None
    require_gradients: bool | None = None
    baseline: str = "eager"
    limits: str = ""
    tier: str = "full"
    rules: str = ""
    author: str | None = None
    visibility: str | None = None

    def to_request(self) -> SubmissionOptions:
        """Return the options as a service takes them. Raises ``BadUsage`` for limits and rules that are not valid."""
        return {
            "device": self.device,
            "size": self.size,
            "precision": self.precision,
            "require_gradients": self.require_gradients,
            "baseline": self.baseline,
            "limits": limits_given(self.limits),
            # The default is left out, for a service from before tiers.
            "tier": None if self.tier == "full" else self.tier,
            "rules": rules_given(self.rules),
            "author": self.author,
            "visibility": self.visibility,
        }
