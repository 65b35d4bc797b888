"""Overflow: elements that a reference loses because an intermediate number is too large, even for float64.

Some of the judge's inputs are far larger than a problem's own. A plain formula may overflow there and come to NaN or to
infinity, where a stable formula of the same function comes to a number: exponentials over their sum, or the logarithm
of one plus an exponential. So the float64 reference is run once more, with each number that overflows held at 1e300. An
element is *lost* where the reference is not finite and this run comes to a number of ordinary size. Everything else
stays the right answer: an infinity that is the result itself (then this run comes to a huge number), a mask of
infinities, a pole such as the logarithm of zero, and NaN of an operator that has no result (the logarithm of -1).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from evaluator.judge.nonfinite import largest_comparable

__all__ = ["Saturating", "undetermined_where_lost"]

_HELD: Final = 1e300
"""A hundred million of them can be added up."""
_ELEMENTWISE: Final = frozenset("add addcmul cosh exp exp2 expm1 mul pow rsub sinh sub".split())  # noqa: SIM905
_REDUCTIONS: Final = frozenset(
    """
    addbmm addmm addmv baddbmm bmm convolution cumprod cumsum dot linalg_vector_norm mean mm mv prod sum var
    """.split()  # noqa: SIM905 - names are read more easily in lines
)
"""Operators whose result may be too large for float64 though what goes into them is finite; of all of these ``pow``
alone has a pole, at zero."""

_ASKED: Final = frozenset({torch.float64, torch.float32, torch.float16, torch.bfloat16})


class Saturating(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Holds each float64 number that overflows at ± 1e300, forward and backward."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Any, _types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.removeprefix("aten::").removesuffix("_")
        if name not in _ELEMENTWISE | _REDUCTIONS or not _scalars_are_finite((args, kwargs)):
            return func(*args, **kwargs)
        # Looked at before the call: an operator may write to what it is given.
        usable = [each.isfinite() for each in _floating((args, kwargs))]
        if name == "pow":
            usable += [base != 0 for base in _floating(args[:1])] or [torch.tensor(args[0] != 0)]
        found = func(*args, **kwargs)
        for result in _floating(found):
            overflowed = result.isinf()
            if result.dtype is not torch.float64 or not bool(overflowed.any()):
                continue
            for each in usable:
                overflowed &= (each if name in _ELEMENTWISE else each.all()).to(result.device)
            result.copy_(torch.where(overflowed, result.sign() * _HELD, result))
        return found


def undetermined_where_lost(own: torch.Tensor, expected: torch.Tensor, saturated: torch.Tensor) -> torch.Tensor:
    """A reference's ``own`` results in the problem's precision, with zeros at the lost elements.

    ``expected``: those in float64, ``saturated``: those of a run under ``Saturating``. An element that is finite in one
    of the two precisions alone is undetermined (see ``evaluator.judge.nonfinite``).
    """
    ordinary = saturated.abs() <= largest_comparable(own.dtype)  # NaN is not
    return own.masked_fill(~(own.isfinite() | expected.isfinite()) & ordinary, 0.0)


def _floating(values: Any) -> Iterator[torch.Tensor]:
    """Of an operator's arguments or results, the floating-point tensors that can be asked for their elements."""
    return (
        each
        for each in tree_leaves(values)
        if isinstance(each, torch.Tensor)
        and each.dtype in _ASKED
        and each.layout is torch.strided
        and not each.is_nested
        and not each._is_zerotensor()
    )


def _scalars_are_finite(values: Any) -> bool:
    return all(math.isfinite(each) for each in tree_leaves(values) if isinstance(each, float))
