"""The native-precision reference as the standard of a timed call, where trials have shown how exact it is.

Float64 convolutions and recurrences have no fast path on any device, and are an order of magnitude slower than those in
float32. A verdict needs them in trials. A timed call only has to agree with the same function again. So it is compared
with the reference in the problem's precision first, within limits that are narrowed by more than the error that trials
found in it. Anything else is compared with the float64 reference, as ever.

No element is right here that would be wrong there, as long as the native-precision reference is no more than twice as
inexact as in the trials on the same kind of inputs. TF32 is switched off in it.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, Final, TypeVar

import torch

from evaluator.judge.correctness.commitment import Commitment, Commitments
from evaluator.judge.correctness.compare import SliceComparison, Tally, compare_slice, compare_unwidened
from evaluator.judge.correctness.kinks import FEW, Deviation, deviations, is_expected, is_whole
from evaluator.judge.correctness.limits import NATIVE_FACTOR, is_rounding, scale_of
from evaluator.judge.correctness.native_precision import NativeGradients, input_gradient_of
from evaluator.judge.correctness.reference import GradientSlice, Reference
from evaluator.judge.correctness.sensitivity import accumulate
from evaluator.judge.correctness.tallies import CallTallies, output_tallies
from evaluator.judge.inputs.drawing import Variant
from evaluator.problems.problem import Tolerance
from evaluator.protocol.control_page import CallReport

__all__ = ["NativeErrors", "NativeStandard", "without_tf32"]

_PARTS: Final = (1 / 64, 1 / 8)
"""The shares of a limit that the error of the native-precision reference is compared with, the smallest first. A larger
error leaves too little of the limit."""
_TIMES: Final = 2.0
"""Limits are narrowed by this many times that share."""
_TIMES_WIDENED: Final = _TIMES + NATIVE_FACTOR
_MOST_OF_ROUNDING: Final = 8.0
"""A gradient that is nothing but rounding may be this many times as large as in trials."""
_SAME_SCALE: Final = 1.01
"""Limits beside the native-precision reference are those beside the float64 one where the scales differ by no more."""
_LEARNT_ON: Final = (Variant.MIXED, Variant.AS_WRITTEN)
"""The kinds of inputs of trials that timed calls usually have as well."""
_MAY_FAIL: Final = 2
"""After so many calls that needed the float64 reference as well, it is used at once."""

_Native = TypeVar("_Native")


@dataclass
class NativeErrors:
    """The errors of the native-precision reference in the trials of a session, by tensor and kind of inputs.

    ``parts``: the share of the limit that the error stays below, 1 where none does. ``rounding``: the largest magnitude
    of a gradient that is nothing but rounding, as that of a bias before a normalisation. It is compared with zero,
    where no trial found anything else in it. ``absent``: gradients that the reference does not have. ``failures``: the
    number of calls that needed the float64 reference as well, of any side, by whether they had gradients.
    """

    parts: dict[tuple[str, Variant], float] = field(default_factory=dict)
    rounding: dict[tuple[str, Variant], float] = field(default_factory=dict)
    absent: set[tuple[str, Variant]] = field(default_factory=set)
    failures: Counter[bool] = field(default_factory=Counter)

    def learn(
        self,
        tensor: str,
        variant: Variant,
        exact: torch.Tensor,
        native: torch.Tensor,
        tolerance: Tolerance,
        *,
        gradient: bool,
    ) -> None:
        """Take in a slice of a tensor, float64 and in the problem's precision without TF32, of one shape. Of a
        ``gradient``, a few elements may be further off, next to kinks."""
        place, part, few = (tensor, variant), 0.0, FEW if gradient else 0.0
        if not exact.is_floating_point():
            part = 0.0 if torch.equal(exact, native) else 1.0
        elif exact.numel():
            part = next((part for part in _PARTS if _within(native, exact, _scaled(tolerance, part), few)), 1.0)
        if part == 1.0 and gradient and is_rounding(exact, torch.sub(native, exact).abs_()):
            self.rounding[place] = max(float(native.abs().max()), self.rounding.get(place, 0.0))
        else:
            self.parts[place] = max(part, self.parts.get(place, 0.0))

    def are_small(self, tensor: str, variant: Variant) -> bool:
        """Whether the errors of a tensor are known on inputs of this kind, and leave enough of its limits."""
        place = tensor, variant
        if place in self.rounding or place in self.absent:
            return place not in self.parts and not (place in self.rounding and place in self.absent)
        return self.parts.get(place, 1.0) <= _PARTS[-1]

    def narrowed(self, tensor: str, variant: Variant, tolerance: Tolerance, times: float = _TIMES) -> Tolerance:
        """Return the tolerance beside the native-precision reference, of a tensor whose errors are small: narrower by
        this many times their share of it."""
        return _scaled(tolerance, max(0.0, 1.0 - times * self.parts[tensor, variant]))


@dataclass
class NativeStandard:
    """The comparison of the timed calls of one side with the native-precision reference.

    ``tolerances`` of its methods are by the name of a tally. ``known`` returns the deviation of a gradient that was
    excused before.
    """

    reference: Reference
    commitments: Commitments
    errors: NativeErrors
    known: Callable[[tuple[str, Variant]], Deviation | None]

    def learn_outputs(
        self,
        variant: Variant,
        tallies: Sequence[Tally],
        tolerances: Mapping[str, Tolerance],
        exact: Sequence[torch.Tensor],
        own: Callable[[], Sequence[torch.Tensor]],
        given: Callable[[], list[Any]],
    ) -> None:
        """Learn from a slice of a forward trial. ``own`` may have TF32; ``given`` returns the inputs anew."""
        if self._is_wanted(variant):
            native = self._without_tf32(own, lambda: self.reference.native_outputs(given()))
            self._learn(variant, tallies, tolerances, exact, native, gradients=False)

    def learn_slice(
        self,
        variant: Variant,
        tallies: CallTallies,
        tolerances: Mapping[str, Tolerance],
        exact: GradientSlice,
        own: Callable[[], GradientSlice],
        given: Callable[[], tuple[list[Any], list[torch.Tensor]]],
        weights: list[torch.Tensor | None],
    ) -> None:
        """Learn from a slice of a forward and backward trial likewise. The gradients of the weights are added to
        ``weights``."""
        if self._is_wanted(variant):
            native = self._without_tf32(own, lambda: self.reference.native_gradients(*given()))
            self._learn(variant, tallies.outputs, tolerances, exact.outputs, native.outputs, gradients=False)
            self._learn(variant, tallies.inputs, tolerances, exact.inputs, native.inputs, gradients=True)
            accumulate(weights, native.weights)

    def learn_weights(
        self,
        variant: Variant,
        tallies: CallTallies,
        tolerances: Mapping[str, Tolerance],
        exact: Sequence[torch.Tensor | None],
        native: Sequence[torch.Tensor | None],
    ) -> None:
        """Learn from the gradients of the weights, over all slices of a trial."""
        if self._is_wanted(variant):
            self._learn(variant, tallies.weights, tolerances, exact, native, gradients=True)

    def _is_wanted(self, variant: Variant) -> bool:
        """Whether the errors on inputs of this kind are of use. Sums over slices are left to the float64 reference."""
        signature = self.reference.signature
        if self.reference.precision is not torch.float32:
            return False  # their errors are about the limits
        return variant in _LEARNT_ON and not signature.pooled and not signature.whole_inputs

    def _without_tf32(self, own: Callable[[], _Native], again: Callable[[], _Native]) -> _Native:
        if not self.reference.has_tf32:
            return own()
        with without_tf32():
            return again()

    def _learn(
        self,
        variant: Variant,
        tallies: Sequence[Tally],
        tolerances: Mapping[str, Tolerance],
        exact: Sequence[torch.Tensor | None],
        native: Sequence[torch.Tensor | None],
        *,
        gradients: bool,
    ) -> None:
        for tally, right, near in zip(tallies, exact, native, strict=True):
            if right is None or near is None:
                self.errors.absent.add((tally.name, variant))
            else:
                self.errors.learn(tally.name, variant, right, near, tolerances[tally.name], gradient=gradients)

    def compare_outputs(
        self, commitment: Commitment, variant: Variant, tolerances: Mapping[str, Tolerance]
    ) -> list[Tally] | None:
        """Return the tallies of a forward call whose outputs are right; ``None`` where the float64 reference has to
        decide. Raises ``Violation``."""
        tallies = output_tallies(self.reference.signature.outputs, commitment.rows)
        if not self._is_usable(tallies, variant, gradients=False):
            return None
        numbers = self.commitments.compared(commitment)
        if all(self._are_right_outputs(tallies, commitment, number, variant, tolerances) for number in numbers):
            return tallies
        self.errors.failures[False] += 1
        return None

    def compare_gradients(
        self, commitment: Commitment, report: CallReport, variant: Variant, tolerances: Mapping[str, Tolerance]
    ) -> CallTallies | None:
        """Return the tallies of a forward and backward call likewise."""
        tallies = CallTallies.of(self.reference.signature, commitment.rows)
        if not self._is_usable([*tallies.outputs, *tallies.inputs, *tallies.weights], variant, gradients=True):
            return None
        if self._are_right_gradients(tallies, commitment, report, variant, tolerances):
            return tallies
        self.errors.failures[True] += 1
        return None

    def _are_right_outputs(
        self,
        tallies: Sequence[Tally],
        commitment: Commitment,
        number: int,
        variant: Variant,
        tolerances: Mapping[str, Tolerance],
    ) -> bool:
        def given() -> list[Any]:
            return self.commitments.input_slice(commitment, number)

        with without_tf32():
            standard = self.reference.native_outputs(given())
        own = cache(lambda: self.reference.native_outputs(given()))
        return self._add_outputs(tallies, commitment, number, variant, standard, own, tolerances)

    def _are_right_gradients(
        self,
        tallies: CallTallies,
        commitment: Commitment,
        report: CallReport,
        variant: Variant,
        tolerances: Mapping[str, Tolerance],
    ) -> bool:
        commitments, numbers = self.commitments, self.commitments.compared(commitment)
        standards: list[torch.Tensor | None] = [None] * len(tallies.weights)

        def slice_of(number: int) -> tuple[list[Any], list[torch.Tensor]]:
            return commitments.input_slice(commitment, number), commitments.upstream_slice(commitment, number)

        natives = NativeGradients(self.reference, numbers, slice_of)

        def is_right(number: int) -> bool:
            with without_tf32():
                standard = self.reference.native_gradients(*slice_of(number))
            accumulate(standards, standard.weights)
            own = cache(partial(_computed_anew, natives, number, slice_of))
            if not self._add_outputs(
                tallies.outputs, commitment, number, variant, standard.outputs, lambda: own().outputs, tolerances
            ):
                return False
            for index, (tally, right) in enumerate(zip(tallies.inputs, standard.inputs, strict=True)):
                if right is not None:
                    tallies.expect(index, right, whole=commitment.rows is None)
                if not report.present >> (1 + index) & 1:
                    if tally.name in tallies.expected:
                        return False  # it may be zero in float64
                    continue
                actual = commitments.private(commitment, "input_gradients", index, number)
                native = partial(input_gradient_of, own, index, actual)
                if right is None or not self._add(
                    tally, actual, right, variant, tolerances[tally.name], native, gradient=True
                ):
                    return False
            return True

        if not all(map(is_right, numbers)):
            return False
        for index, (tally, right) in enumerate(zip(tallies.weights, standards, strict=True)):
            if right is None:
                continue
            is_there = bool(report.present >> (1 + len(tallies.inputs) + index) & 1)
            if not is_there:
                if bool((right != 0).any()) and (tally.name, variant) not in self.errors.rounding:
                    return False  # it may be zero in float64
                continue
            if bool((right != 0).any()):
                tallies.expected.add(tally.name)
            actual = commitments.private(commitment, "weight_gradients", index, 0)
            native = partial(natives.of_weight, index, right)
            if not self._add(tally, actual, right, variant, tolerances[tally.name], native, gradient=True):
                return False
        return True

    def _is_usable(self, tallies: Sequence[Tally], variant: Variant, *, gradients: bool) -> bool:
        """Whether the errors of all of these tensors are known and small, and such calls have not failed before."""
        if self.errors.failures[gradients] >= _MAY_FAIL:
            return False
        return all(self.errors.are_small(tally.name, variant) for tally in tallies)

    def _add_outputs(
        self,
        tallies: Sequence[Tally],
        commitment: Commitment,
        number: int,
        variant: Variant,
        standard: Sequence[torch.Tensor],
        own: Callable[[], Sequence[torch.Tensor]],
        tolerances: Mapping[str, Tolerance],
    ) -> bool:
        for index, tally in enumerate(tallies):
            actual = self.commitments.private(commitment, "outputs", index, number)
            native = partial(_output_of, own, index)
            if not self._add(tally, actual, standard[index], variant, tolerances[tally.name], native, gradient=False):
                return False
        return True

    def _add(
        self,
        tally: Tally,
        actual: torch.Tensor,
        standard: torch.Tensor,
        variant: Variant,
        tolerance: Tolerance,
        own: Callable[[], torch.Tensor],
        *,
        gradient: bool,
    ) -> bool:
        """Compare a slice of a tensor, and take it into the tally where it is right. Return whether it is. ``own``: the
        result with TF32, where the reference may use it. As everywhere, its error widens limits."""
        found = self._compared(tally.name, actual, standard, variant, tolerance, own, gradient=gradient)
        if found is not None:
            tally.add(found)
        return found is not None

    def _compared(
        self,
        name: str,
        actual: torch.Tensor,
        standard: torch.Tensor,
        variant: Variant,
        tolerance: Tolerance,
        own: Callable[[], torch.Tensor],
        *,
        gradient: bool,
    ) -> SliceComparison | None:
        """Return the comparison of a slice that is right, without errors of ours in its figures; otherwise ``None``."""
        if not standard.is_floating_point() or not standard.numel():
            found = compare_slice(
                actual, standard.double() if standard.is_floating_point() else standard, standard, tolerance
            )
            return None if found.wrong else found
        largest = self.errors.rounding.get((name, variant))
        if largest is not None:
            found = compare_slice(actual, torch.zeros_like(standard, dtype=torch.float64), standard, tolerance)
            is_right = not found.wrong and not found.undetermined
            usual_size = bool(actual.abs().max() <= _MOST_OF_ROUNDING * largest)
            return replace(found, widened=1.0, capped=0.0) if is_right and usual_size else None
        if (name, variant) in self.errors.absent:
            return None
        narrowed = self.errors.narrowed(name, variant, tolerance)
        expected = standard.double()
        usual = compare_unwidened(actual, expected, None, narrowed)
        if usual is None or usual.right == usual.total:
            return usual
        known = self.known((name, variant)) if gradient else None
        if known is not None:
            seen, _ = deviations(actual, expected, None, narrowed)
            if is_expected(seen, known) and is_whole(seen, None):
                return replace(usual, right=usual.total)
        if not self.reference.has_tf32:
            return None
        # Four times the distance of TF32 from this standard may be more than that from the float64 one.
        narrowed = self.errors.narrowed(name, variant, tolerance, _TIMES_WIDENED)
        found = compare_slice(actual, expected, own(), narrowed)
        if found.wrong or found.undetermined:
            return None
        whole = not gradient or is_whole(deviations(actual, expected, None, narrowed)[0], None)
        return replace(found, widened=1.0, capped=0.0) if whole else None


@contextlib.contextmanager
def without_tf32() -> Iterator[None]:
    """Compute convolutions and recurrent layers without TF32 meanwhile."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before


def _computed_anew(
    natives: NativeGradients, number: int, slice_of: Callable[[int], tuple[list[Any], list[torch.Tensor]]]
) -> GradientSlice:
    return natives.of_slice(number, *slice_of(number))()


def _output_of(own: Callable[[], Sequence[torch.Tensor]], index: int) -> torch.Tensor:
    return own()[index]


def _scaled(tolerance: Tolerance, factor: float) -> Tolerance:
    return replace(tolerance, atol=tolerance.atol * factor, rtol=tolerance.rtol * factor)


def _within(native: torch.Tensor, exact: torch.Tensor, tolerance: Tolerance, few: float) -> bool:
    """Whether at most the share ``few`` of the elements is further off, all are finite, and the scale is the same.
    Where the reference loses small numbers, the typical magnitude of the others is larger."""
    finite = bool(native.isfinite().all()) and bool(exact.isfinite().all())
    if not finite or deviations(native, exact, None, tolerance)[0].share > few:
        return False
    return scale_of(native.double())[0] <= _SAME_SCALE * scale_of(exact)[0]
