"""Tolerances: of a session, and of a tensor by its dtype."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import torch

from evaluator.problems.problem import Tolerance

__all__ = ["SettledTolerance", "Tolerances", "tolerance_of"]

_OF_HALF: Final = 1e-2
_OF_DOUBLE: Final = 1e-8
_MOVES_IN_TF32: Final = 10 * 2.0**-11
"""Inputs move by a tenth of it, which is half a step of TF32."""


@dataclass(frozen=True)
class SettledTolerance(Tolerance):
    """One that follows from the error of the native-precision reference: that error widens no limit beyond its own."""


@dataclass
class Tolerances:
    """The tolerances of a session: of each output, and of gradients. They are settled before the first call.
    ``stated``: the problem's."""

    stated: Tolerance
    outputs: tuple[Tolerance, ...]
    gradients: Tolerance

    @property
    def in_tf32(self) -> bool:
        """Whether the rounding of the reference to TF32 has widened any of them."""
        return any(isinstance(each, SettledTolerance) for each in (*self.outputs, self.gradients))

    @property
    def moving(self) -> Tolerance:
        """The tolerance by which inputs move to find the sensitivity of gradients: by a rounding to TF32 at the most,
        where such a rounding has widened it."""
        if not isinstance(self.gradients, SettledTolerance):
            return self.gradients
        return replace(self.gradients, rtol=max(self.stated.rtol, min(self.gradients.rtol, _MOVES_IN_TF32)))


def tolerance_of(
    dtype: torch.dtype | None, given: torch.dtype | None, precision: torch.dtype, usual: Tolerance
) -> Tolerance:
    """Return the tolerance of a tensor of ``dtype`` in a problem of this ``precision``, which has the ``usual`` one.
    ``given``: the coarsest dtype of inputs and weights."""
    if dtype is given is torch.float64:
        return Tolerance(min(usual.atol, _OF_DOUBLE), min(usual.rtol, _OF_DOUBLE))
    if dtype in (torch.float16, torch.bfloat16) and precision is torch.float32:
        return Tolerance(max(usual.atol, _OF_HALF), max(usual.rtol, _OF_HALF))
    if dtype is not None and dtype.itemsize == 1:
        step = torch.finfo(dtype).eps  # a number rounded to so few bits is right on either side
        return Tolerance(max(usual.atol, _OF_HALF), max(usual.rtol, step))
    return usual
