"""Overflow: whether a reference loses a finite result on its way, as a softmax of plain exponentials does.

Some of the judge's inputs are far larger than a problem's own. There a plain formula may overflow even in float64 and
come to NaN or to infinity, where a stable formula of the same function comes to a number. Such elements say nothing of
a candidate. An infinity that is itself the result (the exponential of 10,000) or that comes from a pole (the logarithm
of zero), and NaN of an operator that has no result (the logarithm of -1), are what the function is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

__all__ = ["OverflowWatch", "undetermined_where_lost"]

_GROW: Final = frozenset(
    """
    addmm baddbmm bmm cosh cumprod exp exp2 expm1 linalg_vector_norm mm mul norm pow prod sinh square sum
    """.split()  # noqa: SIM905 - names are read more easily in lines
)
"""Operators whose result may be too large for float64 though what goes into them is finite, and which have no pole;
``pow`` has one at zero."""
_LOSE: Final = frozenset(
    "atan div log log10 log1p log2 pow reciprocal rsqrt sigmoid tanh true_divide".split()  # noqa: SIM905 - as above
)
"""Operators that may make of a number which is too large for float64 one which is not."""


class OverflowWatch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Watches one run of a float64 reference. ``lost``: something has overflowed, and what followed from it is not
    finite but might have been."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.lost = False
        self._overflowed = False

    def __torch_dispatch__(
        self, func: Any, _types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.removeprefix("aten::").removesuffix("_")
        # Looked at before the call: an operator may write to what it is given.
        finite = all(map(_is_finite, _floating((args, kwargs))))
        pole = name == "pow" and any(bool((base == 0).any()) for base in _floating(args[:1]))
        nothing_is_nan = not any(bool(given.isnan().any()) for given in _floating((args, kwargs)))
        found = func(*args, **kwargs)
        if finite:
            self._overflowed |= name in _GROW and not pole and any(_is_infinite(each) for each in _floating(found))
        elif self._overflowed:
            made_nan = nothing_is_nan and any(bool(each.isnan().any()) for each in _floating(found))
            self.lost |= made_nan or (name in _LOSE and not all(map(_is_finite, _floating(found))))
        return found


def undetermined_where_lost(own: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """What a reference comes to in the problem's precision, with zeros where neither that nor ``expected`` (float64) is
    finite: of an element that is finite in one of the two alone nothing is known (see ``evaluator.judge.nonfinite``).
    """
    return own.masked_fill(~(own.isfinite() | expected.isfinite()), 0.0)


def _floating(values: Any) -> Iterator[torch.Tensor]:
    return (each for each in tree_leaves(values) if isinstance(each, torch.Tensor) and each.is_floating_point())


def _is_finite(tensor: torch.Tensor) -> bool:
    return bool(tensor.isfinite().all())


def _is_infinite(tensor: torch.Tensor) -> bool:
    return bool(tensor.isinf().any())
