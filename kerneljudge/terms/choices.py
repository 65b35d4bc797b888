"""The values that options of grading may have."""

from __future__ import annotations

from typing import Final

__all__ = [
    "BASELINES",
    "DEVICE_KINDS",
    "GRADIENT_POLICIES",
    "IEEE",
    "INPUT_DOMAINS",
    "LOWER_PRECISIONS",
    "PLAIN_BASELINES",
    "PRECISIONS",
    "TIERS",
    "checked_tier",
]

DEVICE_KINDS: Final = ("cpu", "cuda")
PRECISIONS: Final = ("float32", "float16", "bfloat16")
IEEE: Final = "ieee"
BASELINES: Final = ("eager", IEEE, "compile", "compile-max-autotune", "tf32", "float16", "bfloat16")
"""Divisors of a speedup: the reference as it is, without TF32, by ``torch.compile``, or in another precision."""
PLAIN_BASELINES: Final = ("eager", IEEE)
"""Baselines that run the reference as it is written. ``ieee``: both sides begin without TF32 (``Problem.tf32_in``)."""

LOWER_PRECISIONS: Final = ("tf32", "float16", "bfloat16")
"""Baselines that compute less exactly than the problem asks for: only where the problem allows them."""

TIERS: Final = ("check", "quick", "full")
"""Depths of grading, the shallowest first: no timing, a rough figure, and the figure that leaderboards rank."""

GRADIENT_POLICIES: Final = ("check", "require", "none")
"""``check``: verify gradients if the candidate has them. ``require``: missing ones fail. ``none``: skip."""

INPUT_DOMAINS: Final = ("real", "as_written")
"""``real``: any finite value is a fair input. ``as_written``: only the inputs of ``get_inputs``."""


def checked_tier(name: str) -> str:
    """Return ``name``, which is one of ``TIERS``. Raises ``ValueError`` where it is not."""
    if name not in TIERS:
        raise ValueError(f"tier must be one of {', '.join(TIERS)}, not {name!r}")
    return name
