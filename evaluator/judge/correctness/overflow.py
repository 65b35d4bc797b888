"""Overflow: elements that a reference loses because an intermediate number is too large or too small for float64.

Some of the judge's inputs are far larger than a problem's own. A plain formula may overflow there to NaN or infinity,
where a stable formula of the same function gives a number. Examples are exponentials over their sum, the logarithm of
one plus an exponential, or that of a softmax.

So the float64 reference is run once more, with each overflowing number held at 1e300 and each underflowing one at
1e-300. An element is *lost* where the reference is not finite and this run gives a number of ordinary size. Everything
else stays the right answer:

- an infinity that is the result itself (then this run gives a huge number),
- a mask of infinities,
- a pole such as the logarithm of zero,
- NaN of an operator that has no result (the logarithm of -1).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from evaluator.judge.correctness.nonfinite import largest_comparable

__all__ = ["Saturating", "undetermined_where_lost"]

_HELD: Final = 1e300
"""The sum of a hundred million of these is still finite."""
_HELD_BELOW: Final = 1e-300
_ELEMENTWISE: Final = frozenset("add addcmul cosh exp exp2 expm1 mul pow rsub sinh sub".split())  # noqa: SIM905
_REDUCTIONS: Final = frozenset(
    """
    addbmm addmm addmv baddbmm bmm convolution cumprod cumsum dot linalg_vector_norm mean mm mv prod sum var
    """.split()  # noqa: SIM905 - names are read more easily in lines
)
"""Operators whose result may be too large for float64 although their arguments are finite. Only ``pow`` among them has
a pole, at zero."""
_UNDERFLOWING: Final = frozenset("_softmax div exp exp2 mul pow sigmoid".split())  # noqa: SIM905
"""Operators whose result may be zero, or nearly, although no argument is zero or infinite; exponents may be zero."""
_ASKED: Final = frozenset({torch.float64, torch.float32, torch.float16, torch.bfloat16})


class Saturating(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Hold each float64 number that overflows at ± 1e300, and each that underflows at ± 1e-300, forward and
    backward."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Any, _types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.removeprefix("aten::").removesuffix("_")
        grows, shrinks = name in _ELEMENTWISE | _REDUCTIONS, name in _UNDERFLOWING
        if not (grows or shrinks) or not _scalars_are_finite((args, kwargs)):
            return func(*args, **kwargs)
        # Checked before the call: an operator may write to its arguments.
        finite = [each.isfinite() for each in _floating((args, kwargs))]
        zero = _zeros(name, args)
        found = func(*args, **kwargs)
        for result in _floating(found):
            if result.dtype is not torch.float64:
                continue
            if grows:
                # A sum of two that overflow in opposite directions is NaN.
                too_large = ~result.isfinite() if name in _REDUCTIONS else result.isinf()
                excluded = [each if name in _ELEMENTWISE else each.all() for each in finite]
                _hold(result, too_large, [*excluded, *(~each for each in zero if name == "pow")], _HELD)
            if shrinks:
                _hold(result, result.abs() < _HELD_BELOW, [*finite, *(~each for each in zero)], _HELD_BELOW)
        return found


def undetermined_where_lost(own: torch.Tensor, expected: torch.Tensor, saturated: torch.Tensor) -> torch.Tensor:
    """Return the native-precision results ``own``, with zeros at the lost elements.

    ``expected``: the float64 results. ``saturated``: those of a run under ``Saturating``. An element that is finite in
    one of the two precisions alone is undetermined (see ``evaluator.judge.correctness.nonfinite``).
    """
    ordinary = saturated.abs() <= largest_comparable(own.dtype)  # NaN is not
    return own.masked_fill(~(own.isfinite() | expected.isfinite()) & ordinary, 0.0)


def _zeros(name: str, args: Sequence[Any]) -> list[torch.Tensor]:
    """Return masks of zeros in those arguments that make a result of zero, or a pole, right: factors, a numerator, a
    base."""
    count = {"mul": 2, "div": 1, "pow": 1}.get(name, 0)
    return [each == 0 if isinstance(each, torch.Tensor) else torch.tensor(each == 0) for each in args[:count]]


def _hold(result: torch.Tensor, there: torch.Tensor, where: Sequence[torch.Tensor], magnitude: float) -> None:
    """Write ± ``magnitude`` to ``result`` wherever it is ``there`` and all of ``where``, which broadcast, allow it."""
    for each in where:
        there = there & each.to(result.device)
    if bool(there.any()):
        result.copy_(torch.where(there, torch.full_like(result, magnitude).copysign_(result), result))


def _floating(values: Any) -> Iterator[torch.Tensor]:
    """Yield the floating-point tensors among an operator's arguments or results whose elements can be read."""
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
