"""Values that are not finite: comparison by class or by value, and undetermined elements.

An element is compared by value where the reference is finite, in float64 as well as in the problem's precision. Where
it is finite in neither, the class has to be the same: NaN, infinity or minus infinity, by either of the two. Elements
that a reference loses by overflowing are an exception (see ``evaluator.judge.correctness.overflow``).

Where one of the two is finite and the other is not, there is no standard for a candidate: mostly something has
overflowed in the problem's precision alone. Such an element is *undetermined*. So is one that is next to overflowing,
because rounding decides whether it does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import torch

__all__ = ["MaskedTensors", "largest_comparable", "mask_nonfinite"]

_NEARLY: Final = 0.98
"""The share of the largest number of the problem's precision beyond which a number may be infinite after rounding."""


@dataclass(frozen=True)
class MaskedTensors:
    """Tensors with zeros at all elements that are not compared by value. ``undetermined``: the number of such elements.
    ``mismatched``: the mask of elements of another class than the reference's, ``None`` without any. ``conclusive``:
    the number of conclusive elements, which are compared by value, or infinite in both."""

    actual: torch.Tensor
    expected: torch.Tensor
    reference: torch.Tensor
    undetermined: int
    mismatched: torch.Tensor | None
    conclusive: int

    @property
    def conclusive_share(self) -> float:
        """The conclusive share of the elements; 1 where there are no elements."""
        return self.conclusive / self.actual.numel() if self.actual.numel() else 1.0

    def shown(self, actual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return ``actual`` and ``expected`` with their errors: elements of another class have the candidate's value
        beside NaN."""
        if self.mismatched is None:
            return self.actual, self.expected
        return (
            torch.where(self.mismatched, actual, self.actual),
            self.expected.masked_fill(self.mismatched, torch.nan),
        )


def largest_comparable(dtype: torch.dtype) -> float:
    """Return the largest magnitude that is compared by value in a floating-point ``dtype``."""
    return float(_NEARLY * torch.finfo(dtype).max)


def mask_nonfinite(actual: torch.Tensor, expected: torch.Tensor, reference: torch.Tensor) -> MaskedTensors:
    """Settle the class of each element. ``expected`` is float64, ``reference`` the native-precision reference,
    ``actual`` a candidate's; all have one shape."""
    most = largest_comparable(actual.dtype)
    if _are_within(most, expected) and _are_within(math.inf, reference):
        return MaskedTensors(actual, expected, reference, 0, None, expected.numel())
    finite, native_finite = torch.isfinite(expected), torch.isfinite(reference)
    beyond = finite & (expected.abs() > most)
    by_value = finite & native_finite & ~beyond
    by_class = ~(finite | native_finite)
    mismatched = by_class & ~(_same_class(actual, expected) | _same_class(actual, reference))
    rest = ~by_value
    return MaskedTensors(
        actual.masked_fill(rest, 0.0),
        expected.masked_fill(rest, 0.0),
        reference.masked_fill(rest, 0.0),
        int(((finite ^ native_finite) | beyond).sum()),
        mismatched if bool(mismatched.any()) else None,
        int((by_value | (by_class & torch.isinf(expected))).sum()),
    )


def _are_within(most: float, tensor: torch.Tensor) -> bool:
    """Whether all elements are finite and none is larger than ``most``, in one pass and without a mask."""
    if not tensor.numel():
        return True
    least, largest = map(float, torch.stack(torch.aminmax(tensor)).tolist())
    return -most <= least and largest <= most and math.isfinite(least) and math.isfinite(largest)


def _same_class(actual: torch.Tensor, infinite: torch.Tensor) -> torch.Tensor:
    """Whether ``actual`` is of the class of ``infinite`` where that is not finite; anything elsewhere."""
    return (actual == infinite.to(actual.dtype)) | (torch.isnan(actual) & torch.isnan(infinite))
