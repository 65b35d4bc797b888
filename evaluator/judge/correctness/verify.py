"""Verification of one call: the committed tensors, compared with the reference."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from typing import Any, Final

import torch

from evaluator.errors import ProblemError
from evaluator.evaluation import Gradients, Verdict
from evaluator.judge.correctness.commitment import Commitment, Commitments
from evaluator.judge.correctness.compare import SliceComparison, Tally, compare_slice, compare_unwidened
from evaluator.judge.correctness.kinks import FEW, Deviation, deviations, is_expected, is_whole
from evaluator.judge.correctness.limits import NOTHING, is_rounding, root_mean_square, rounding_of_terms
from evaluator.judge.correctness.native_precision import NativeGradients, Own, further_off, input_gradient_of
from evaluator.judge.correctness.native_standard import NativeErrors, NativeStandard
from evaluator.judge.correctness.nonfinite import mask_nonfinite
from evaluator.judge.correctness.overflow import undetermined_where_lost
from evaluator.judge.correctness.reference import NUDGE, GradientSlice, Reference
from evaluator.judge.correctness.sensitivity import BesideZero, Rounding, Sensitivity, Terms, accumulate, take_largest
from evaluator.judge.correctness.steps import Steps
from evaluator.judge.correctness.tallies import (
    CallTallies,
    gradient_name,
    output_tallies,
    tolerances_by_tensor,
)
from evaluator.judge.correctness.tolerances import Tolerances
from evaluator.judge.inputs.drawing import Variant
from evaluator.judge.parts import Part, parts_of
from evaluator.judge.pooled_outputs import PooledOutputs
from evaluator.judge.signature import Signature
from evaluator.problems.problem import Tolerance
from evaluator.protocol.control_page import CallReport
from evaluator.protocol.shared_memory import Block

__all__ = ["CallFindings", "ExpectedDeviations", "Verifier"]

_ROUNDINGS: Final = 4.0
_OF_RTOL: Final = 0.1
"""Inputs are moved by this many times the distance of neighbouring numbers to find ill-conditioned outputs. The move is
at most this share of the relative tolerance."""
_ILL_CONDITIONED: Final = 0.01
_FEW_WRONG: Final = 4
"""At most this share of an output, or this many elements, may be ill-conditioned: where more is wrong, its movement is
not computed."""
_MAX_LOST: Final = 0.1
"""Up to this share of a tensor may be undetermined in the run over all rows alone, and still counts as conclusive."""
_MIN_CONCLUSIVE_SHARE: Final = 0.5
"""A call is conclusive where this share of each compared tensor is."""


@dataclass
class CallFindings:
    """The findings of one verified call. ``verdict`` is ``None`` where nothing is wrong."""

    verdict: Verdict | None = None
    message: str = ""
    gradients: Gradients = Gradients.NOT_CHECKED
    gradient_notes: list[str] = field(default_factory=list)
    tallies: list[Tally] = field(default_factory=list)
    mismatch: dict[str, Any] | None = None
    """The evidence about the wrong tensor that the message names (``mismatch.Evidence.describe``)."""

    @property
    def inconclusive(self) -> bool:
        """Whether too little of a tensor is conclusive: the reference itself is not finite there."""
        return any(tally.conclusive_share < _MIN_CONCLUSIVE_SHARE for tally in self.tallies)


ExpectedDeviations = dict[tuple[str, Variant], Deviation]
"""Deviations of gradients from the reference next to kinks alone, by tensor and kind of inputs."""


class Verifier:
    """The verifier of the calls of one side over the shared blocks. ``usual``: the expected deviations of the baseline,
    which has only rounding errors; it may grow."""

    def __init__(
        self,
        reference: Reference,
        blocks: dict[str, Block],
        tolerances: Tolerances,
        new_generator: Callable[[], torch.Generator],
        slice_elements: int | None,
        usual: ExpectedDeviations | None = None,
        native_errors: NativeErrors | None = None,
    ) -> None:
        self._reference = reference
        self._tolerances = tolerances
        self.ambiguous_weights: frozenset[str] = frozenset()
        """Weights whose counterparts were found by values that other weights have as well: the counterpart may be
        another's."""
        self._generator = new_generator
        self.commitments = Commitments(reference.signature, blocks, new_generator, slice_elements)
        self._rows_alone = slice_elements is not None and reference.signature.rows is not None
        self.expected_deviations: ExpectedDeviations = {}
        self._examined: set[str] = set()
        """Gradients whose seeming errors were all found to be next to kinks."""
        self._usual = {} if usual is None else usual
        self._native_errors = NativeErrors() if native_errors is None else native_errors
        self._native_standard = NativeStandard(reference, self.commitments, self._native_errors, self._known)
        self.influence: dict[int, float] = {}
        """By floating-point input, the share of its elements that the outputs were seen to depend on."""

    @cached_property
    def _by_tensor(self) -> dict[str, Tolerance]:
        """The tolerance of each output and gradient, by the name of its tally."""
        return tolerances_by_tensor(self._reference, self._tolerances)

    def verify_outputs(self, commitment: Commitment, variant: Variant, *, with_native: bool) -> CallFindings:
        """Compare the outputs of a forward call. ``with_native``: the native-precision error is wanted, needed or not.
        Without, that reference is the standard where it is exact enough. Raises ``Violation``."""
        if not with_native:
            found = self._native_standard.compare_outputs(commitment, variant, self._by_tensor)
            if found is not None:
                return self._judge(found, [], variant)
        tallies = output_tallies(self._reference.signature.outputs, commitment.rows)
        of_all = cache(partial(self._native_of_all_rows, commitment, gradients=False))
        if self._reference.signature.pooled:
            self._add_pooled(tallies, commitment, None, of_all, with_native=with_native)
            return self._judge(tallies, [], variant)

        def add(number: int) -> None:
            given = partial(self.commitments.input_slice, commitment, number)
            values = given()
            self._reference.detect_casts(values)
            exact = self._reference.exact_outputs(values)
            own = cache(partial(self._reference.native_outputs, values))
            saturated = cache(lambda: self._reference.saturated_outputs(given()))
            all_rows = partial(_outputs_of, partial(self._of_these_rows, of_all, commitment, number))
            self._add_outputs(
                self._reference,
                tallies,
                commitment,
                number,
                values,
                exact,
                own,
                all_rows,
                saturated,
                with_native=with_native,
            )
            if with_native:
                self._native_standard.learn_outputs(variant, tallies, self._by_tensor, exact, own, given)

        for number in self.commitments.compared(commitment):
            add(number)  # in a function, so that a slice's memory is free for the next one
        return self._judge(tallies, [], variant)

    def verify_gradients(
        self, commitment: Commitment, report: CallReport, counterparts: int, variant: Variant, *, with_native: bool
    ) -> CallFindings:
        """Compare outputs and gradients of a forward and backward call. ``with_native``: as for outputs. Raises
        ``Violation``."""
        if not with_native:
            compared = self._native_standard.compare_gradients(commitment, report, variant, self._by_tensor)
            if compared is not None:
                return self._findings(compared, report, counterparts, variant)
        signature = self._reference.signature
        tallies = CallTallies.of(signature, commitment.rows)
        outputs, inputs, weights, expected = tallies.outputs, tallies.inputs, tallies.weights, tallies.expected
        summed = _summed(signature)
        exact_sums: list[torch.Tensor | None] = [None] * len(summed)
        native_sums: list[torch.Tensor | None] = [None] * len(summed)
        pooled: list[torch.Tensor | None] = [None] * (len(outputs) if signature.pooled else 0)
        numbers = self.commitments.compared(commitment)

        def slice_of(number: int) -> tuple[list[Any], list[torch.Tensor]]:
            return self.commitments.input_slice(commitment, number), self.commitments.upstream_slice(commitment, number)

        stated, around = self._tolerances.stated, (self._generator, numbers, slice_of)
        sensitivity = Sensitivity(self._reference, self._tolerances.moving, *around, rows_alone=self._rows_alone)
        rounding = Rounding(self._reference, stated, *around, rows_alone=self._rows_alone)
        all_terms = Terms(self._reference, stated, *around, rows_alone=False)
        beside = BesideZero(self._reference, stated, *around, rows_alone=False)
        at_zero = variant is Variant.ZEROS
        native_gradients = NativeGradients(self._reference, numbers, slice_of)
        saturated_weights = cache(partial(self._saturated_weights, numbers, slice_of))
        of_all = cache(partial(self._native_of_all_rows, commitment, gradients=True))

        def add(number: int) -> None:
            values, upstream = slice_of(number)
            exact = self._reference.exact_gradients(values, upstream)
            own = native_gradients.of_slice(number, values, upstream)
            accumulate(exact_sums, exact.weights)
            saturated = cache(lambda: self._reference.saturated_gradients(*slice_of(number)))
            all_rows = partial(self._of_these_rows, of_all, commitment, number)
            if pooled:
                share = self.commitments.share(number)
                accumulate(pooled, [output * share for output in exact.outputs])
            else:
                self._add_outputs(
                    self._reference,
                    outputs,
                    commitment,
                    number,
                    values,
                    exact.outputs,
                    lambda: own().outputs,
                    partial(_outputs_of, all_rows),
                    partial(_outputs_of, saturated),
                    with_native=with_native,
                )
            for index, tally in enumerate(inputs):
                if index in signature.whole_gradients:
                    continue
                right = exact.inputs[index]
                if right is None:
                    if report.present >> (1 + index) & 1:  # where nothing flows back, nothing but zeros may
                        actual = self.commitments.private(commitment, "input_gradients", index, number)
                        nothing = torch.zeros_like(actual, dtype=torch.float64)
                        tally.add(compare_slice(actual, nothing, torch.zeros_like(actual), self._tolerances.gradients))
                    continue
                tallies.expect(index, right, whole=commitment.rows is None)
                if report.present >> (1 + index) & 1:
                    actual = self.commitments.private(commitment, "input_gradients", index, number)
                    native = partial(input_gradient_of, own, index, right)
                    errors, jumps, move, terms = (
                        partial(_move_of_input, kind, number, index, exact, actual, native)
                        for kind in (rounding, beside, sensitivity, all_terms)
                    )
                    moves = [errors, jumps, move] if at_zero else [errors, move]
                    if at_zero:
                        actual = _where_defined(actual, right, native())
                    self._add(
                        tally,
                        actual,
                        right,
                        native,
                        variant,
                        moves,
                        with_native=with_native,
                        all_rows=partial(_input_of, all_rows, index),
                        saturated=partial(_input_of, saturated, index),
                        terms=terms,
                    )
            if with_native:
                self._native_standard.learn_slice(
                    variant, tallies, self._by_tensor, exact, own, partial(slice_of, number), native_sums
                )

        for number in numbers:
            add(number)
        if with_native:
            self._native_standard.learn_weights(variant, tallies, self._by_tensor, exact_sums, native_sums)
        if pooled:
            known = [output for output in pooled if output is not None]
            self._add_pooled(outputs, commitment, known, of_all, with_native=with_native)
        for index, (block, place) in enumerate(summed):
            right, is_input = exact_sums[index], block == "input_gradients"
            tally = inputs[place] if is_input else weights[place]
            is_there = bool(report.present >> (1 + place + (0 if is_input else len(inputs))) & 1)
            if is_input:
                tallies.influence[place] = 0.0 if right is None else int((right != 0).sum()) / max(1, right.numel())
            if right is None:
                if is_input and is_there:  # as above
                    actual = self.commitments.private(commitment, block, place, 0)
                    nothing = torch.zeros_like(actual, dtype=torch.float64)
                    tally.add(compare_slice(actual, nothing, torch.zeros_like(actual), self._tolerances.gradients))
                continue
            native = partial(native_gradients.of_weight, index, right)
            # The gradient of a bias before a normalisation is nothing but rounding, and a candidate without it is
            # right.
            if bool((right != 0).any()) and (is_there or not is_rounding(right, (native() - right).abs_())):
                expected.add(tally.name)
            if is_there:
                actual = self.commitments.private(commitment, block, place, 0)
                by_rows = partial(sensitivity.near_weight, index)
                by_all = partial(sensitivity.of_weight, index, exact_sums)
                terms = partial(all_terms.of_weight, index, exact_sums)
                kinds = (rounding, beside) if at_zero else (rounding,)
                first = [partial(kind.of_weight, index, exact_sums) for kind in kinds]
                if at_zero:
                    actual = _where_defined(actual, right, native())
                moves = [*first, by_rows, by_all]
                self._add(
                    tally,
                    actual,
                    right,
                    native,
                    variant,
                    moves,
                    with_native=with_native,
                    all_rows=partial(_weight_of, of_all, index),
                    saturated=partial(_weight_of, saturated_weights, index),
                    terms=terms,
                )
        return self._findings(tallies, report, counterparts, variant)

    def _findings(self, tallies: CallTallies, report: CallReport, counterparts: int, variant: Variant) -> CallFindings:
        for index, share in tallies.influence.items():
            self.influence[index] = max(share, self.influence.get(index, 0.0))
        findings = self._judge(tallies.outputs, [*tallies.inputs, *tallies.weights], variant)
        if findings.verdict is None:
            self._judge_gradients(findings, tallies, bool(report.present & 1), counterparts, variant)
        return findings

    def _add_pooled(
        self,
        tallies: Sequence[Tally],
        commitment: Commitment,
        exact: Sequence[torch.Tensor] | None,
        of_all: Callable[[], GradientSlice | None],
        *,
        with_native: bool,
    ) -> None:
        """Compare outputs that are means or sums over all slices. ``exact``: in float64, where they are known."""
        given = partial(self.commitments.input_slice, commitment)
        shares = [self.commitments.share(number) for number in self.commitments.compared(commitment)]
        pooled = PooledOutputs(self._reference, shares, given)
        if exact is None:
            self._reference.detect_casts(given(0))
            exact = pooled.exact_outputs([])
        own, saturated = cache(partial(pooled.native_outputs, [])), cache(partial(pooled.saturated_outputs, []))
        all_rows = partial(_outputs_of, of_all)
        self._add_outputs(pooled, tallies, commitment, 0, [], exact, own, all_rows, saturated, with_native=with_native)

    def _add_outputs(
        self,
        source: Reference | PooledOutputs,
        tallies: Sequence[Tally],
        commitment: Commitment,
        number: int,
        values: Sequence[Any],
        exact: Sequence[torch.Tensor],
        own: Callable[[], Sequence[torch.Tensor]],
        all_rows: Callable[[], Sequence[torch.Tensor] | None],
        saturated: Callable[[], Sequence[torch.Tensor] | None],
        *,
        with_native: bool,
    ) -> None:
        """Compare one slice of every output, and examine errors.

        Where few elements are wrong, they may be ill-conditioned. In a softmax of large scores, for example, with two
        about equal ones, rounding alone decides which is the larger. So an element may be as far off as it moves when
        the inputs are rounded otherwise. ``all_rows`` is as for gradients (see ``_add``).
        """
        terms: list[torch.Tensor | None] | None = None
        moves: list[torch.Tensor | None] | None = None
        exact = list(exact)
        steps = Steps(self._reference, values, own, self._tolerances.stated.rtol, self._generator)
        for index, tally in enumerate(tallies):
            actual, right = self.commitments.private(commitment, "outputs", index, number), exact[index]
            floating = right.is_floating_point()
            if not floating:
                right = exact[index] = steps.nearest(index, actual, right)
            tolerance = self._by_tensor[tally.name]
            if tally.add_clearly_wrong(actual, right, tolerance):
                continue
            usual = compare_unwidened(actual, right, None, tolerance) if floating and not with_native else None
            if usual is not None and usual.right == usual.total:
                tally.add(usual)
                continue
            native = own()[index] if floating else right
            known: tuple[torch.Tensor | None, torch.Tensor | None] = None, None
            found = compare_slice(actual, right, native, tolerance)
            if found.wrong and floating and _is_of_another_class(actual, right, native):
                held = saturated()
                if held is not None:
                    native = undetermined_where_lost(native, right, held[index])
                    found = compare_slice(actual, right, native, tolerance)
            if found.wrong and floating and _may_be_terms(actual, right, native, tolerance):
                terms = terms or self._terms_of_outputs(source, values, exact)
                known = None, terms[index]
                found = compare_slice(actual, right, native, tolerance, *known)
            if floating and 0 < found.wrong <= max(_FEW_WRONG, _ILL_CONDITIONED * found.total):
                moves = moves or self._moves_of_outputs(source, values, exact)
                known = moves[index], known[1]
                found = compare_slice(actual, right, native, tolerance, *known)
            if found.wrong and floating and not tally.wrong:
                others = all_rows()
                if others is not None:
                    native = further_off(native, others[index], right, actual)
                    found = _with_loss(found, compare_slice(actual, right, native, tolerance, *known))
            tally.add(found)
            if found.wrong:
                tally.examine(actual, right, native, tolerance, *known)

    def _terms_of_outputs(
        self, source: Reference | PooledOutputs, values: Sequence[Any], exact: Sequence[torch.Tensor]
    ) -> list[torch.Tensor | None]:
        """Return the magnitude of the terms that each element of the outputs is a sum of; ``None`` for integers."""
        nudged = source.nudged_outputs(values, self._generator())
        moves = _largest_moves(nudged, exact)
        # Next to a step an output jumps, which says nothing of its terms: none counts as larger than the rest.
        return [
            None if moved is None else (moved / NUDGE).clamp_(max=root_mean_square(right))
            for moved, right in zip(moves, exact, strict=True)
        ]

    def _moves_of_outputs(
        self, source: Reference | PooledOutputs, values: Sequence[Any], exact: Sequence[torch.Tensor]
    ) -> list[torch.Tensor | None]:
        """Return the largest movement of each output when the inputs are rounded otherwise; ``None`` for integers."""
        relative = min(_ROUNDINGS * self._reference.epsilon, _OF_RTOL * self._tolerances.stated.rtol)
        return _largest_moves(source.perturbed_outputs(values, relative, self._generator()), exact)

    def _add(
        self,
        tally: Tally,
        actual: torch.Tensor,
        expected: torch.Tensor,
        own: Own,
        variant: Variant,
        moves: Sequence[Callable[[Part], torch.Tensor | None]],
        *,
        with_native: bool,
        all_rows: Callable[[], torch.Tensor | None],
        saturated: Callable[[], torch.Tensor | None],
        terms: Callable[[Part], torch.Tensor | None] | None = None,
    ) -> None:
        """Compare a slice of a gradient in parts, and examine one that is wrong.

        ``terms``: the magnitude of the terms that its elements are sums of. ``moves``: its movements with the inputs,
        one after the other until nothing is wrong any more. ``saturated``: the float64 reference with numbers held
        where they overflow. ``all_rows``: the native-precision reference computed for all rows at once, where the rest
        is in vain.

        The movements cost two dozen evaluations of the reference, so they are only computed where nothing else explains
        the difference. Next to a kink, rounding alone puts a few elements on one side or the other. The expected number
        and size are those excused before on inputs of the same kind, for this side or the baseline. Once this gradient
        has been examined, they are also those of the native-precision reference on these very inputs. Only larger
        deviations are examined: an error in equally few places, the same each time, is found by the first examination.
        """
        # What one part shows is no excuse for another of the same call.
        known, examined = self._known((tally.name, variant)), tally.name in self._examined
        for part in parts_of(expected):
            self._add_part(
                part,
                tally,
                part(actual),
                part(expected),
                partial(_own_part, part, own),
                variant,
                moves,
                known,
                examined_before=examined,
                with_native=with_native,
                all_rows=partial(_part_of, part, all_rows),
                saturated=partial(_part_of, part, saturated),
                terms=terms,
            )

    def _add_part(
        self,
        part: Part,
        tally: Tally,
        actual: torch.Tensor,
        expected: torch.Tensor,
        own: Own,
        variant: Variant,
        moves: Sequence[Callable[[Part], torch.Tensor | None]],
        known: Deviation | None,
        *,
        examined_before: bool,
        with_native: bool,
        all_rows: Callable[[], torch.Tensor | None],
        saturated: Callable[[], torch.Tensor | None],
        terms: Callable[[Part], torch.Tensor | None] | None,
    ) -> None:
        """Compare one part of a slice: all but the movements are its own already. ``known`` and ``examined_before`` are
        from earlier calls and slices."""
        tolerance = self._by_tensor[tally.name]
        if tally.add_clearly_wrong(actual, expected, tolerance):
            return
        usual = compare_unwidened(actual, expected, own() if with_native else None, tolerance)
        if usual is not None and usual.right == usual.total:
            tally.add(usual)
            return
        place = tally.name, variant
        if usual is not None and known is not None:
            seen, _ = deviations(actual, expected, None, tolerance)
            if is_expected(seen, known) and is_whole(seen, None):
                tally.add(replace(usual, right=usual.total))
                return
        of_terms: torch.Tensor | None = None
        sensitivity: torch.Tensor | None = None
        found = compare_slice(actual, expected, own(), tolerance)
        if found.wrong and _is_of_another_class(actual, expected, own()):
            held = saturated()
            if held is not None:
                own = partial(undetermined_where_lost, own(), expected, held)
                found = compare_slice(actual, expected, own(), tolerance)
        if found.suspect:
            seen, its_own, of_one_class = _deviations(actual, expected, own(), tolerance)
            whole = is_whole(seen, its_own)
            if examined_before and 0 < its_own.share <= FEW:
                known = its_own if known is None else known.joined(its_own)
            if known is not None and whole and of_one_class and is_expected(seen, known):
                self.expected_deviations[place] = known
                tally.add(replace(found, right=found.total - found.undetermined, widened=1.0, capped=0.0, worst=None))
                return
            if found.wrong and terms is not None:
                of_terms = terms(part)
                found = compare_slice(actual, expected, own(), tolerance, None, of_terms)
            examined = bool(found.wrong)
            for move in moves:
                if not found.wrong:
                    break
                moved = move(part)
                if moved is not None:
                    sensitivity = moved if sensitivity is None else torch.maximum(sensitivity, moved)
                    found = compare_slice(actual, expected, own(), tolerance, sensitivity, of_terms)
            others = all_rows() if found.wrong and not tally.wrong else None
            if others is not None:
                own = partial(further_off, own(), others, expected, actual)
                found = _with_loss(found, compare_slice(actual, expected, own(), tolerance, sensitivity, of_terms))
                seen, its_own, _ = _deviations(actual, expected, own(), tolerance)
                whole = is_whole(seen, its_own)
            if not found.wrong and not whole and terms is not None:
                of_terms = terms(part) if of_terms is None else of_terms
                whole = of_terms is not None and _differs_by_rounding(
                    seen, actual, expected, own(), of_terms, tolerance
                )
            if not found.wrong and not whole:
                # A candidate may be on either side of a tie or kink, with about the same total gradient. Without this
                # check, leaving the gradient out would be excused wherever ties are dense.
                found = replace(found, right=found.right - max(1, round(seen.share * found.total)))
            elif not found.wrong and examined and seen.share <= FEW:
                self._examined.add(tally.name)
                self.expected_deviations[place] = seen if known is None else known.joined(seen)
        tally.add(found)
        if found.wrong:
            tally.examine(actual, expected, own(), tolerance, sensitivity, of_terms)

    def _saturated_weights(
        self, numbers: Sequence[int], slice_of: Callable[[int], tuple[list[Any], list[torch.Tensor]]]
    ) -> GradientSlice | None:
        """Return the gradients of the weights alone, over all slices, with numbers held where they overflow."""
        total: list[torch.Tensor | None] = [None] * self._reference.signature.summed_gradients
        for number in numbers:
            found = self._reference.saturated_gradients(*slice_of(number))
            if found is None:
                return None
            accumulate(total, found.weights)
        return GradientSlice([], [], total)

    def _native_of_all_rows(self, commitment: Commitment, *, gradients: bool) -> GradientSlice | None:
        """Return outputs, and ``gradients`` if requested, in the problem's precision with all rows at once; ``None``
        where a call is compared so anyway, and where there is no memory for it.

        Kernels divide their work by the number of rows, which affects their rounding: a running sum of a few rows in
        bfloat16 may be right where that of many has long stopped growing. With row sampling, copies of the sampled rows
        stand for the others. A run that only excuses a candidate ends no evaluation.
        """
        if commitment.rows is None and not self.commitments.sliced:
            return None
        try:
            found = self._computed_at_once(commitment, gradients=gradients)
        except (torch.OutOfMemoryError, ProblemError, RuntimeError, TypeError):
            found = None
        # This memory was not planned. With row sampling, in a timed call, giving it back would affect the time.
        if commitment.rows is None and self._generator().device.type == "cuda":
            torch.cuda.empty_cache()
        return found

    def _computed_at_once(self, commitment: Commitment, *, gradients: bool) -> GradientSlice:
        values = self.commitments.inputs(commitment)
        if not gradients:
            return GradientSlice(self._reference.native_outputs(values), [], [])
        return self._reference.native_gradients(values, self.commitments.upstream(commitment))

    def _of_these_rows(
        self, found: Callable[[], GradientSlice | None], commitment: Commitment, number: int
    ) -> GradientSlice | None:
        """Return the part of slice ``number``, or of the sampled rows, in the result of ``_native_of_all_rows``."""
        held = found()
        if held is None:
            return None
        cut = self.commitments.rows_compared(commitment, number)
        assert cut is not None
        outputs = self._reference.signature.rows_of_outputs(held.outputs, cut)
        inputs = [None if gradient is None else gradient[cut[0] : cut[1]] for gradient in held.inputs]
        return GradientSlice(outputs, inputs, held.weights)

    def _known(self, gradient: tuple[str, Variant]) -> Deviation | None:
        """Return the deviation of a gradient that was excused before, of either side."""
        ours, usual = self.expected_deviations.get(gradient), self._usual.get(gradient)
        return ours.joined(usual) if ours is not None and usual is not None else ours or usual

    def _judge(self, outputs: list[Tally], gradients: list[Tally], variant: Variant) -> CallFindings:
        findings = CallFindings(tallies=[*outputs, *(tally for tally in gradients if tally.total)])
        wrong = [tally for tally in outputs if not tally.passed]
        if wrong:
            findings.verdict = Verdict.WRONG_OUTPUT
            _explain(findings, wrong[0].describe(), wrong[0], variant)
        return findings

    def _judge_gradients(
        self,
        findings: CallFindings,
        tallies: CallTallies,
        has_graph: bool,
        counterparts: int,
        variant: Variant,
    ) -> None:
        if not has_graph:
            findings.gradients = Gradients.MISSING
            return
        inputs, weights, expected = tallies.inputs, tallies.weights, tallies.expected
        without_counterpart = [
            name
            for index, (name, _) in enumerate(self._reference.signature.weights)
            if not counterparts >> index & 1 and weights[index].name in expected
        ]
        excused = {gradient_name(name) for name in without_counterpart}
        names = {gradient_name(name): name for name, _ in self._reference.signature.weights}
        confused = [
            names[tally.name]
            for tally in weights
            if tally.total and not tally.passed and names[tally.name] in self.ambiguous_weights
        ]
        excused |= {gradient_name(name) for name in confused}
        for tally in (*inputs, *weights):
            if tally.total and not tally.passed and tally.name not in excused:
                message = tally.describe()
            elif tally.name in expected and not tally.total and tally.name not in excused:
                message = f"{tally.name} is missing: it does not reach the outputs, and the reference's does"
            else:
                continue
            findings.verdict = Verdict.WRONG_GRADIENT
            findings.gradients = Gradients.MISMATCH
            _explain(findings, message, tally, variant)
            return
        findings.gradients = Gradients.PARTIAL if without_counterpart or confused else Gradients.MATCH
        if confused:
            findings.gradient_notes.append(
                f"which of the candidate's tensors stand for {', '.join(confused)} could not be told, since several "
                "begin with the same values and none has their names, so those gradients could not be compared"
            )
        if without_counterpart:
            findings.gradient_notes.append(
                "no counterpart of "
                + ", ".join(without_counterpart)
                + " was found in the candidate, so that gradient could not be compared"
            )


def _summed(signature: Signature) -> list[tuple[str, int]]:
    """Return the blocks and places of the gradients that are sums over slices, in the order of a ``GradientSlice``."""
    weights = [("weight_gradients", place) for place in range(len(signature.weights))]
    return [*weights, *(("input_gradients", place) for place in signature.whole_gradients)]


def _own_part(part: Part, own: Own) -> torch.Tensor:
    return part(own())


def _part_of(part: Part, found: Callable[[], torch.Tensor | None]) -> torch.Tensor | None:
    whole = found()
    return None if whole is None else part(whole)


def _outputs_of(found: Callable[[], GradientSlice | None]) -> list[torch.Tensor] | None:
    held = found()
    return None if held is None else held.outputs


def _input_of(found: Callable[[], GradientSlice | None], index: int) -> torch.Tensor | None:
    """Return the gradient of input ``index``."""
    held = found()
    return None if held is None else held.inputs[index]


def _weight_of(found: Callable[[], GradientSlice | None], index: int) -> torch.Tensor | None:
    """Return the gradient of weight ``index``."""
    held = found()
    return None if held is None else held.weights[index]


def _where_defined(actual: torch.Tensor, exact: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
    """Return a gradient with the native-precision one wherever the reference has no finite one: at exact zeros, no side
    has to match the other's NaN."""
    return torch.where(exact.isfinite() & own.isfinite(), actual, own.to(actual.dtype))


def _move_of_input(
    sensitivity: Sensitivity, number: int, index: int, exact: GradientSlice, actual: torch.Tensor, own: Own, part: Part
) -> torch.Tensor | None:
    return sensitivity.of_input(number, index, exact, actual, own(), part)


def _deviations(
    actual: torch.Tensor, expected: torch.Tensor, own: torch.Tensor, tolerance: Tolerance
) -> tuple[Deviation, Deviation, bool]:
    """Return the deviations of a gradient and of the native-precision one ``own`` where all three are finite. The last
    value tells whether the other elements are of the same class."""
    settled = mask_nonfinite(actual, expected, own)
    seen, its_own = deviations(settled.actual, settled.expected, settled.reference, tolerance)
    return seen, its_own, settled.mismatched is None


def _is_of_another_class(actual: torch.Tensor, expected: torch.Tensor, own: torch.Tensor) -> bool:
    """Whether an element is finite, infinite or NaN where the reference is something else."""
    return mask_nonfinite(actual, expected, own).mismatched is not None


def _differs_by_rounding(
    seen: Deviation,
    actual: torch.Tensor,
    expected: torch.Tensor,
    own: torch.Tensor,
    terms: torch.Tensor,
    tolerance: Tolerance,
) -> bool:
    """Whether the sum of a gradient's magnitudes is about the exact one. It may differ by a few roundings of the
    ``terms``, or by next to nothing of the total gradient.

    This happens in a softmax of one large score, in the row in which the reference is finite in both precisions. Only
    the remainder of cancelled terms flows back there, and a stable formula may leave a better one than the float64
    reference.
    """
    settled = mask_nonfinite(actual, expected, own)
    there = (settled.actual != 0) | (settled.expected != 0)
    rounded = rounding_of_terms(terms, tolerance, torch.finfo(actual.dtype).eps)
    rounded = torch.where(there, rounded, 0.0).sum()
    nothing = NOTHING * expected.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0).abs().sum()
    apart = abs(seen.magnitude - 1.0) * float(settled.expected.abs().sum())
    return apart <= max(float(rounded), float(nothing))


def _with_loss(before: SliceComparison, found: SliceComparison) -> SliceComparison:
    """Return ``found`` with elements as undetermined that the reference loses with all rows at once. A few of them
    count as conclusive: this run is only made for calls with errors, whose number a candidate decides, and an
    inconclusive call is repeated. With more than a few, the tensor would have no standard."""
    lost = found.undetermined - before.undetermined
    return replace(found, conclusive=before.conclusive) if lost <= _MAX_LOST * found.total else found


def _may_be_terms(actual: torch.Tensor, exact: torch.Tensor, own: torch.Tensor, tolerance: Tolerance) -> bool:
    """Whether hardly anything would be wrong with the largest possible terms of every element; otherwise finding out
    their size is in vain."""
    found = compare_slice(actual, exact, own, tolerance, None, exact.new_full((), math.inf))
    return found.wrong <= max(_FEW_WRONG, _ILL_CONDITIONED * found.total)


def _largest_moves(moved: Iterable[list[torch.Tensor]], exact: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
    """Return the largest distance of each of several outputs from the exact one, by element; ``None`` for integers."""
    floating = [output if output.is_floating_point() else None for output in exact]
    largest: list[torch.Tensor | None] = [None] * len(exact)
    for outputs in moved:
        take_largest(largest, outputs, floating)
    return largest


def _explain(findings: CallFindings, message: str, tally: Tally, variant: Variant) -> None:
    """Set the message about a wrong tensor, and the evidence about its errors."""
    patterns = [] if tally.evidence is None else [pattern.sentence for pattern in tally.evidence.patterns()]
    findings.message = "; ".join([f"{message} (inputs: {variant.value})", *patterns])
    if tally.evidence is not None:
        findings.mismatch = tally.evidence.describe(tally.name, variant.value)
