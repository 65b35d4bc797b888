"""The rules of a problem or of a request: allowed languages, forbidden operators, no lower precision. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kerneljudge.terms.operator_names import OPERATORS

__all__ = ["LANGUAGES", "NO_RULES", "Rules", "parse_rules", "rules_text"]

LANGUAGES: Final = ("cpp", "cuda", "torch", "triton")
"""``torch``: no kernel in one of the other languages."""

_FIELDS: Final = ("forbidden_operators", "languages", "no_lower_precision")
_MAX_NAMES: Final = 64
_MAX_QUOTED: Final = 200


@dataclass(frozen=True)
class Rules:
    """Rules about a candidate's source.

    - ``languages``: the allowed languages of its kernels, of ``LANGUAGES``; empty: all.
    - ``forbidden_operators``: operators of torch that it may not call, of ``OPERATORS``.
    - ``no_lower_precision``: it may not compute in a precision below the problem's.

    The names are sorted, and each is there once.
    """

    languages: tuple[str, ...] = ()
    forbidden_operators: tuple[str, ...] = ()
    no_lower_precision: bool = False

    def __bool__(self) -> bool:
        return self != NO_RULES

    def joined(self, further: Rules) -> Rules:
        """Return rules that hold exactly where both hold. Raises ``ValueError`` where they allow no common language."""
        languages = set(self.languages or LANGUAGES) & set(further.languages or LANGUAGES)
        if not languages:
            raise ValueError(
                f"languages must be among {', '.join(self.languages)}: a request cannot loosen the problem's rules"
            )
        return Rules(
            languages=tuple(sorted(languages)) if self.languages or further.languages else (),
            forbidden_operators=tuple(sorted({*self.forbidden_operators, *further.forbidden_operators})),
            no_lower_precision=self.no_lower_precision or further.no_lower_precision,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON-ready data of the rules that are set; ``Rules.from_dict`` takes it back."""
        values: dict[str, Any] = {
            "forbidden_operators": list(self.forbidden_operators),
            "languages": list(self.languages),
            "no_lower_precision": self.no_lower_precision,
        }
        return {name: value for name, value in values.items() if value}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Rules:
        """Return the rules in ``data``, a table of any of the fields. Raises ``ValueError`` naming the field."""
        unknown = sorted(set(data) - set(_FIELDS))
        if unknown:
            raise ValueError(f"there is no rule {_quoted(unknown[0])}; there are {', '.join(_FIELDS)}")
        strict = data.get("no_lower_precision", False)
        if not isinstance(strict, bool):
            raise ValueError(f"no_lower_precision must be true or false, not {_quoted(strict)}")
        return cls(
            languages=_names(data, "languages", LANGUAGES),
            forbidden_operators=_names(data, "forbidden_operators", tuple(sorted(OPERATORS))),
            no_lower_precision=strict,
        )


NO_RULES: Final = Rules()


def parse_rules(text: str) -> Rules:
    """Parse ``languages=cuda+triton, forbidden_operators=matmul+softmax, no_lower_precision=true``.

    Empty text has no rules. Raises ``ValueError``.
    """
    found: dict[str, Any] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, sign, value = (word.strip() for word in part.partition("="))
        if not sign or name in found:
            raise ValueError(f"a rule is given once, as NAME=VALUE with + between several values, not {_quoted(part)}")
        if name == "no_lower_precision":
            found[name] = {"true": True, "false": False}.get(value, value)
        else:
            found[name] = [word.strip() for word in value.split("+")]
    return Rules.from_dict(found)


def rules_text(rules: Rules) -> str:
    """Write ``rules`` as ``parse_rules`` takes them, in one order; without rules, nothing."""
    values = rules.to_dict().items()
    return ",".join(f"{name}={'true' if value is True else '+'.join(value)}" for name, value in values)


def _quoted(value: object) -> str:
    return repr(value)[:_MAX_QUOTED]


def _names(data: Mapping[str, Any], field: str, known: tuple[str, ...]) -> tuple[str, ...]:
    value = data.get(field)
    if field not in data:
        return ()
    if not isinstance(value, list | tuple) or not 0 < len(value) <= _MAX_NAMES:
        raise ValueError(f"{field} must be a list of 1 to {_MAX_NAMES} names, not {_quoted(value)}")
    for name in value:
        if name not in known:
            raise ValueError(f"{field} may name {', '.join(known)}, and not {_quoted(name)}")
    return tuple(sorted(set(value)))
