"""The session of one candidate: its trials, its samples and the findings about it."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import torch

from evaluator.config import PLAIN_BASELINES, EvalConfig
from evaluator.dtypes import rows_of, tensor_on
from evaluator.errors import ProblemError
from evaluator.evaluation import ErrorFigures, Gradients, Latency, Verdict
from evaluator.feedback.weight_words import listed, sentences_about
from evaluator.judge.correctness.commitment import same_bits
from evaluator.judge.correctness.native_standard import NativeErrors
from evaluator.judge.correctness.reference import Reference
from evaluator.judge.correctness.tallies import output_tallies
from evaluator.judge.correctness.tolerances import Tolerances
from evaluator.judge.correctness.verify import CallFindings, ExpectedDeviations, Verifier
from evaluator.judge.device.device import Device
from evaluator.judge.errors import Violation
from evaluator.judge.inputs.drawing import InputSource, Variant
from evaluator.judge.inputs.informative_kinds import MIN_CONCLUSIVE_SHARE, USUAL_PROBLEMS
from evaluator.judge.inputs.parameters import Values, Variation, ambiguous_weights, mixed, stepped, varied
from evaluator.judge.inputs.repeats import MANY, Repeats, flip_some
from evaluator.judge.link import RunnerFailed, RunnerTimeout, TimedCall
from evaluator.judge.memory_plan import MemoryPlan
from evaluator.judge.result import Outcome
from evaluator.judge.timing.figures import Measured
from evaluator.judge.timing.flop_count import count_work, known_work
from evaluator.judge.timing.interference import InterferenceMonitor
from evaluator.judge.timing.sampling import Sampler, Sampling
from evaluator.judge.timing.timed_call import Calibrations, Caller, CallInputs, InputKind, Participant
from evaluator.judge.timing.timeline import Timeline
from evaluator.judge.timing.track import INFERENCE, TRAINING, Track
from evaluator.problems.problem import Problem
from evaluator.protocol.control_page import CallMode, WeightReport
from evaluator.protocol.shared_memory import Block, TensorSpec
from evaluator.roofline import share_of_roofline

__all__ = ["BaselineSession", "CandidateSession", "Concluded", "SessionContext"]

_TRIALS: Final = (
    Variant.AS_WRITTEN,
    Variant.MIXED,
    Variant.WIDE,
    Variant.SPECIAL,
    Variant.STRUCTURED,
)
_GRADIENT_TRIALS: Final = (Variant.MIXED, Variant.AS_WRITTEN, Variant.WIDE)
_BETWEEN_OTHERS: Final = 2
"""This gradient trial, counted from zero, runs as between other calls of a training. By then everything is compiled,
and numbers of both signs are drawn."""
_INTERLEAVED_BYTES: Final = 2**30
"""A runner that needs more than this by itself may have no memory for a second graph."""
_MOVED_BYTES: Final = 2**28
"""Larger weights are not moved between calls, because the memory plan has no room for copies of them."""
_CALLED_ONCE_MORE: Final = "where the model is called once more between forward and backward"
_MAY_COMPILE: Final = 2
"""This many calls of each mode may compile something: the first does, and the second may record graphs."""
_WHOLE_TRIALS: Final = 2
_WHOLE_GRADIENT_TRIALS: Final = 1
"""The numbers of trials in which every element of sliced tensors is compared. After these, secret rows of them are
enough."""

_CALLS_FOR_ONE: Final = 3
"""A timed call that is inconclusive is repeated. After this many it is no accident."""
_CAPPED: Final = 0.01
"""Limits that are capped at more than this share of a tensor's elements are recorded: in this precision the reference
itself is too inexact to tell right from wrong."""


_FEW_ROWS: Final = 64
_DIFFERS: Final = 1e-7
"""Float64 outputs that differ by more than this share of their root mean square differ by more than rounding.
Cancellation in an exponential of large numbers leaves as much as 1e-9."""


_WRONG_ONCE_VARIED: Final = "the outputs are wrong once these have other values"
_WITHOUT_COUNTERPART: Final = "the candidate has no counterpart of them"
_UNMOVED: Final = "the reference is not finite with other values of them"


_REPEATS: Final[dict[tuple[str, str, str], Repeats]] = {}
"""The repeats in draws of inputs, by problem, version and size. They are kept because drawing large inputs takes
long."""


class _WrongOnceVaried(Exception):
    """The candidate is wrong once constants of the construction have other values."""


class Concluded(Exception):
    """The verdict is final; ``CandidateSession.outcome`` has it."""


@dataclass
class SessionContext:
    """The state that all candidates of a session are judged with.

    - ``sampled``: the kind of inputs of timed calls, by mode; only modes with a conclusive kind, which are timed.
    - ``training``: whether there are gradients to compare.
    - ``deadline``: the end of the session, on the monotonic clock, in seconds.
    - ``calibrations``: those of the baseline. ``interference``: the monitor of the device, for the calls of all sides.
    - ``used_before``: bytes of the device in use before. ``spare_bytes``: held by runners that wait for a larger
      session.
    - ``fault_context``: a context in which the faults of a side are attributed to it.
    - ``candidates``: their number.
    - ``warmup``: inputs of calls that are not compared. ``recycled``: inputs of the latest two calls that had new ones.
    - ``precheck_inputs``: the inputs that prechecks write.
    - ``baseline_ms``: the time that the baseline reported for each call, by mode. ``native_errors``: from all trials.
    """

    problem: Problem
    config: EvalConfig
    device: Device
    baseline: Participant
    reference: Reference
    tolerances: Tolerances
    blocks: dict[str, Block]
    plan: MemoryPlan
    source: InputSource
    sampled: dict[CallMode, Variant]
    training: bool
    deadline: float
    calibrations: Calibrations
    used_before: int
    spare_bytes: int
    candidates: int
    fault_context: Callable[[Participant], contextlib.AbstractContextManager[None]]
    interference: InterferenceMonitor
    warmup: dict[InputKind, CallInputs] = field(default_factory=dict)
    recycled: dict[InputKind, list[CallInputs]] = field(default_factory=dict)
    precheck_inputs: dict[InputKind, CallInputs] = field(default_factory=dict)
    baseline_ms: dict[CallMode, list[float]] = field(default_factory=dict)
    variation: Variation = field(default_factory=Variation)
    """Other values of the constants of the reference's construction, once it is constructed."""
    native_errors: NativeErrors = field(default_factory=NativeErrors)
    repeats: Mapping[str, list[str]] = field(default_factory=dict)
    """Inputs that are the same in every draw: those that the judge ``varied``, and those that are the ``same`` or
    ``related`` in every call. Empty groups are left out."""

    def kind_of(self, mode: CallMode) -> Variant:
        """Return the kind of inputs of timed calls; as written for modes that are not timed, since no kind is
        conclusive."""
        return self.sampled.get(mode, Variant.AS_WRITTEN)

    @property
    def used_bytes(self) -> int:
        """Bytes of the device's memory in use."""
        return self.device.total_bytes() - self.device.free_bytes()

    @property
    def weight_names(self) -> list[str]:
        """The names of parameters, then buffers, in the order of the shared memory."""
        signature = self.reference.signature
        return [name for name, _ in (*signature.weights, *signature.buffers)]

    @property
    def problem_key(self) -> tuple[Hashable, ...]:
        """Everything except chance that decides which inputs are possible."""
        config, training = self.config, self.training and self.config.sampling.gradient_trials > 0
        settings = config.size, config.precision, config.given_inputs_only, training, self.problem.tf32_in(config)
        return self.problem.id, self.problem.version, *settings

    def vary(self) -> None:
        """Draw other values for constants of the reference's construction, and for those in a constant relation. The
        reference's outputs stay as finite as they were."""
        initial = self.reference.values_of(self.reference.constants)
        if not initial:
            return
        inputs = self._few_inputs(Variant.AS_WRITTEN)
        self.reference.set_state(initial)
        finite = _finite(self.reference.native_outputs(inputs))

        def is_finite(values: Values) -> bool:
            self.reference.set_state(values)
            return self._is_as_finite(inputs, finite)

        self.variation = varied(initial, self.device.generator(), is_finite)

    def find_repeats(self) -> None:
        """Find inputs that repeat. Vary those masks of which the reference takes other values and is as finite as it
        was."""
        if self.config.given_inputs_only:
            return
        specs, known = self.reference.signature.input_tensors, (self.problem.id, self.problem.version, self.config.size)
        as_written = self.problem.input_domain == "as_written"
        if known not in _REPEATS:
            # Where any numbers are allowed, the judge draws them as well.
            examined = [place for place, spec in enumerate(specs) if as_written or not spec.is_differentiable]
            _REPEATS[known] = self.source.repeats(examined)
        same, related = _REPEATS[known].same, _REPEATS[known].related
        masks = [place for place in same if specs[place].torch_dtype is torch.bool and not as_written]
        masks = [place for place in masks if self._takes_another_mask(place)]
        self.source.vary_masks(masks)
        kinds = {"varied": masks, "same": [place for place in same if place not in masks], "related": related}
        self.repeats = {kind: [f"input {place}" for place in places] for kind, places in kinds.items() if places}

    def _takes_another_mask(self, place: int) -> bool:
        inputs = self._few_inputs(Variant.AS_WRITTEN)
        finite = _finite(self.reference.native_outputs(inputs))
        tensors = [number for number, value in enumerate(inputs) if isinstance(value, torch.Tensor)]
        mask = inputs[tensors[place]]
        inputs[tensors[place]] = flip_some(mask, secrets.randbits(63), MANY)
        return self._is_as_finite(inputs, finite)

    def _is_as_finite(self, inputs: Sequence[Any], finite: Mapping[tuple[int, tuple[int, ...]], int]) -> bool:
        """Whether at least as many elements of the reference's outputs are finite as in ``finite``, in the same
        shapes."""
        try:
            found = _finite(self.reference.native_outputs(inputs))
        except ProblemError:  # the mask is an index into a tensor, or an extent
            return False
        return [*found] == [*finite] and all(found[shape] >= count for shape, count in finite.items())

    def matter(self, names: Collection[str]) -> bool:
        """Whether the reference's outputs depend on these of its parameters and buffers, on any kind of inputs."""
        kinds = [variant for variant in _TRIALS if self.source.available(variant)]
        return any(self._matter_on(self._few_inputs(variant), names) for variant in kinds)

    def _matter_on(self, inputs: Sequence[Any], names: Collection[str]) -> bool:
        found = []
        for values in (self.variation.each, mixed(self.variation.each, self.variation.initial, names)):
            self.reference.set_state(values)
            found.append(self.reference.exact_outputs(inputs))
        return any(_differ(one, other) for one, other in zip(*found, strict=True))

    def _few_inputs(self, variant: Variant) -> list[Any]:
        """Return inputs of a kind, in the problem's precision. Of independent rows there are a few, and those with
        something planted."""
        signature, seed = self.reference.signature, secrets.randbits(63)
        tensors = self.source.make(signature.input_tensors, variant, seed, avoid_zero=False)
        if self.problem.row_independent and signature.rows is not None:
            rows = sorted({*range(min(_FEW_ROWS, signature.rows)), *self.source.planted_rows(variant, seed)})
            tensors = [rows_of(tensor, tensor_on(tensor.device, rows, torch.int64)) for tensor in tensors]
        given = iter(tensors)
        return [
            value.arrange(next(given)) if isinstance(value, TensorSpec) else value["value"]
            for value in signature.inputs
        ]

    def write_weights(self) -> None:
        """Write the reference's parameters and buffers to the shared memory."""
        for target, value in zip(self.blocks["weights"].tensors, self.reference.state_values(), strict=True):
            target.copy_(value)
        self.device.synchronize()

    @contextlib.contextmanager
    def weights_shown(self, values: Values) -> Iterator[None]:
        """Show the reference's parameters and buffers with these ``values`` in the shared memory while a candidate
        compares, loads or takes them. Another candidate may have written there. Raises ``Violation`` for a change
        meanwhile."""
        self.reference.set_state(values)
        self.write_weights()
        yield
        if self.candidates == 1:
            return  # a single candidate could only spoil its own
        shown, right = self.blocks["weights"].tensors, self.reference.state_values()
        if not all(same_bits(one, other.contiguous()) for one, other in zip(shown, right, strict=True)):
            raise Violation("the reference's weights were overwritten in the shared memory")

    def new_verifier(self, usual: ExpectedDeviations | None = None) -> Verifier:
        return Verifier(
            self.reference,
            self.blocks,
            self.tolerances,
            self.device.generator,
            self.device.slice_elements if self.problem.in_slices else None,
            usual,
            self.native_errors,
        )

    def new_caller(self, candidate: Participant, verifier: Verifier) -> Caller:
        return Caller(
            self.device,
            self.config.limits,
            candidate,
            self.baseline,
            self.blocks,
            self.reference.signature.input_tensors,
            self.source,
            verifier.commitments,
            self.plan.lean,
            self.fault_context,
            self.warmup,
            self.recycled,
            self.precheck_inputs,
            self.calibrations,
            baseline_ms=self.baseline_ms,
            interference=self.interference,
        )


class BaselineSession:
    """The comparison for all candidates: timed calls of the baseline. ``candidate``: the one that the baseline takes
    turns with in keeping memory, where the plan is lean."""

    def __init__(self, common: SessionContext, candidate: Participant) -> None:
        self._context = common
        self._verifier = common.new_verifier()
        self.caller = common.new_caller(candidate, self._verifier)

    @property
    def expected_deviations(self) -> ExpectedDeviations:
        """The expected deviations of the baseline's gradients so far."""
        return self._verifier.expected_deviations

    def sample(self, track: Track) -> TimedCall:
        """Make one timed call of the baseline, anew where wrong results may have been read in a freed allocation."""
        common, caller = self._context, self.caller
        side, limits, kind = common.baseline, common.config.limits, common.kind_of(track.mode)
        common.reference.set_state(common.variation.each)
        # The next call finds processor and device as after a call of a candidate. In a session of one candidate, each
        # side follows itself as often as the other, so only short calls are affected. Without this comparison, the
        # candidate's calls had some 10 µs more around them than the baseline's on an H200.
        compared = common.candidates > 1 or (common.device.asynchronous and caller.is_short(track.mode))
        while True:
            call, commitment = caller.call(
                side, track.mode, kind, limits.call_s, spot_check=True, cold=track.cold, compared=compared
            )
            timeline, findings = Timeline(), None
            if common.candidates > 1 and track.mode is CallMode.BACKWARD:
                counterparts = side.link.weight_report().counterparts
                findings = self._verifier.verify_gradients(
                    commitment, call.report, counterparts, kind, with_native=False
                )
            elif compared:
                findings = self._verifier.verify_outputs(commitment, kind, with_native=False)
            timeline.note("comparison")
            # A baseline in another precision is wrong by design.
            is_right = findings is None or findings.verdict is None or common.config.baseline not in PLAIN_BASELINES
            if is_right or caller.has(side, commitment):
                return replace(call, steps_ms={**call.steps_ms, **timeline.ms})


class CandidateSession:
    """The findings about one candidate, from its calls. ``report`` takes its progress: a stage, a message, a share."""

    def __init__(
        self,
        common: SessionContext,
        standard: BaselineSession,
        candidate: Participant,
        outcome: Outcome,
        report: Callable[[str, str, float | None], None],
    ) -> None:
        self.candidate = candidate
        self.outcome = outcome
        self._context = common
        self._baseline_session = standard
        self._report = report
        self._device = common.device
        self._config = common.config
        problem, config = common.problem, common.config
        self._verifier = common.new_verifier(usual=standard.expected_deviations)
        self.caller = common.new_caller(candidate, self._verifier)
        self._sampler = Sampler(
            self.caller,
            config.sampling,
            self._floor_ms,
            lambda message, share: report("sampling", message, share),
            share_of_time=1 / common.candidates,
        )
        self._output_names = {tally.name for tally in output_tallies(common.reference.signature.outputs)}
        self._gradients_required = (
            problem.gradient_policy == "require" if config.require_gradients is None else config.require_gradients
        )
        self._conclusive_share: dict[str, float] = {}
        """By tensor, the largest conclusive share of a trial."""
        self._peak_bytes = 0
        self._max_abs: float | None = None
        self._max_rel: float | None = None
        self._reference_max_rel: float | None = None
        self._values: Values = {}
        """The values of parameters and buffers in the calls of this candidate."""
        self._varied = self._loaded = False
        self._fixed: dict[str, list[str]] = {}
        """Constants that were only checked with the values of their construction, by the reason."""
        self._found = WeightReport()
        """The report about its weights after its construction."""
        self._calls = Counter[CallMode]()
        self._kept_weights: tuple[str, ...] = ()
        """Weights whose change between two calls makes it wrong: training gets no figure."""
        outcome.gradients = Gradients.NOT_CHECKED if common.training else Gradients.NOT_APPLICABLE
        if problem.gradient_policy == "none":
            outcome.gradients = Gradients.NOT_CHECKED

    @property
    def slices(self) -> Sequence[tuple[int, int] | None]:
        """The rows of large tensors that are compared at a time; one ``None`` for all rows."""
        return self._verifier.commitments.slices

    @property
    def takes_rows_apart(self) -> bool:
        """Whether some rows are compared by themselves, in any call."""
        commitments = self._verifier.commitments
        return commitments.sliced or commitments.may_spot_check(gradients=False)

    def verify(self) -> None:
        """Run the forward trials, then the gradient trials, and set the gradient result. Raises ``Concluded`` for a
        wrong result, and the errors of ``Caller.call``."""
        self._found = self.candidate.link.weight_report()
        if self._context.repeats:
            self.outcome.details["inputs"] = dict(self._context.repeats)
        self._vary()
        try:
            self._verify(vary=True)
        except _WrongOnceVaried:
            # The weights may have been folded in at construction: then it is right only for the constructed values.
            self._take(self._context.variation.initial)
            self._forget_errors()
            self._kept_weights = ()
            self._verify(vary=False)
            self._fixed = {_WRONG_ONCE_VARIED: [*self._context.reference.constants]}
        self._varied = False
        for why, names in self._fixed.items():
            self._note_fixed(names, why)
        if self._kept_weights:
            self._note_kept_weights()

    def _vary(self) -> None:
        """Have the candidate take other values for the constants of its construction."""
        common, variation = self._context, self._context.variation
        constants, related = common.reference.constants, common.reference.related
        self._values = variation.initial
        self._fixed = {}
        if not constants:
            return
        self.outcome.details["parameters"] = {"constant": [name for name in constants if name not in related]}
        if related:
            self.outcome.details["parameters"]["related"] = list(related)
        report, places = self.candidate.link.weight_report(), common.weight_names
        missing = [name for name in constants if not report.taking >> places.index(name) & 1]
        unnamed = [name for name in constants if name not in missing and not report.named >> places.index(name) & 1]
        self._verifier.ambiguous_weights = ambiguous_weights(variation.initial, unnamed)
        named = not unnamed
        values = variation.each if named else variation.tie_preserving
        unmoved = [name for name in variation.unmoved(values) if name not in missing]
        if unmoved:
            self.outcome.details["parameters"]["unmoved"] = unmoved
            self._fixed[_UNMOVED] = unmoved
        if missing and common.matter(missing):
            self._fixed[_WITHOUT_COUNTERPART] = missing
        if len(missing) < len(constants):
            self._take(mixed(values, variation.initial, missing))
            self._varied = True

    def _take(self, values: Values) -> None:
        """Set these values of the constants of the construction in reference and candidate, from now on."""
        common = self._context
        self._values = values
        self._varied = False
        places = [common.weight_names.index(name) for name in values]
        with common.weights_shown(values):
            self.caller.take_weights(self.candidate, places)

    def _note_fixed(self, names: Sequence[str], why: str) -> None:
        """Note that the candidate was only checked with the constructed values of these weights."""
        self.outcome.details["parameters"].setdefault("fixed", []).extend(names)
        related = [name for name in names if name in self._context.reference.related]
        same = "have the same relations" if len(related) == len(names) else "are the same"
        same += " or have the same relations" if 0 < len(related) < len(names) else ""
        note = (
            f"weights fixed at construction: {listed(names)} {same} under every seed, and {why}, so they may "
            "have been folded in or left out; a model whose load_state_dict takes other values is ranked"
        )
        self.outcome.note_once([note])

    def _forget_errors(self) -> None:
        self._max_abs = self._max_rel = self._reference_max_rel = None
        for name in ("gradient_max_abs", "tolerance_widened"):
            self.outcome.details.pop(name, None)

    def _verify(self, *, vary: bool) -> None:
        """Run all trials. ``vary``: whether the candidate has other values of the constants, as far as it takes any."""
        trials, gradient_trials = self._config.sampling.trials, self._config.sampling.gradient_trials
        conclusive = 0
        variants = list(self._cycle(_TRIALS, trials))
        # A choice among several equal numbers may differ without being wrong.
        if trials > 1 and not self._context.reference.signature.chooses:
            variants.append(Variant.ZEROS)
        position = 0
        while position < len(variants):
            variant = variants[position]
            self._report("verifying", f"forward, inputs {variant.value}", position / (len(variants) + gradient_trials))
            spot_check = conclusive >= _WHOLE_TRIALS and self._verifier.commitments.sliced
            _, findings = self._call(CallMode.FORWARD, variant, spot_check=spot_check)
            differing = self.candidate.link.weight_report().differing.bit_count()
            if findings.verdict is Verdict.WRONG_OUTPUT and differing and not self._loaded:
                # It may have been constructed from another stream of random numbers than the reference: try the
                # reference's weights.
                with self._context.weights_shown(self._values):
                    self.caller.load_weights(self.candidate)
                self.outcome.notes.append(
                    f"{differing} weights differed from the reference's after constructing under the same seed; "
                    "the reference's were loaded"
                )
                self._loaded, position, conclusive = True, 0, 0
                if vary:
                    self._vary()  # weights that it had drawn differently are counterparts now
                continue
            self._conclude_if_wrong(findings)
            conclusive += not findings.inconclusive
            if position == 0:
                self._try_baseline(INFERENCE)
            position += 1
        inconclusive = [name for name in self._output_names if not self._conclusive_share.get(name)]
        if inconclusive:
            raise ProblemError(
                f"{min(inconclusive)} of the reference is not finite on any of its inputs: nothing can be compared"
            )
        if self._context.training:
            self._verify_gradients(gradient_trials, trials)

    def _verify_gradients(self, gradient_trials: int, trials: int) -> None:
        conclusive = 0
        signature = self._context.reference.signature
        variants = [*self._cycle(_GRADIENT_TRIALS, gradient_trials)]
        # The largest of several zeros is any of them, and a gradient flows back to that one alone.
        if gradient_trials > 1 and not (signature.chooses or signature.takes_largest):
            variants.append(Variant.ZEROS)
        for number, variant in enumerate(variants):
            share = (trials + number) / (trials + len(variants))
            self._report("verifying", f"gradients, inputs {variant.value}", share)
            spot_check = conclusive >= _WHOLE_GRADIENT_TRIALS and self._verifier.commitments.sliced
            findings = (
                self._call_between_others(variant, spot_check=spot_check)
                if number == _BETWEEN_OTHERS and variant is not Variant.ZEROS
                else self._call(CallMode.BACKWARD, variant, spot_check=spot_check)[1]
            )
            conclusive += not findings.inconclusive
            self.outcome.gradients = findings.gradients
            self._conclude_if_wrong(findings)
            self.outcome.note_once(findings.gradient_notes)
            if number == 0:
                self._try_baseline(TRAINING)
            if findings.gradients is Gradients.MISSING:
                if self._gradients_required:
                    self._conclude(
                        Verdict.WRONG_GRADIENT,
                        "gradients are required, and the output carries no graph: nothing flows back to the inputs",
                    )
                return
        inconclusive = [name for name, share in self._conclusive_share.items() if share < MIN_CONCLUSIVE_SHARE]
        if inconclusive and self.outcome.gradients is Gradients.MATCH:
            if self._gradients_required:
                raise ProblemError(
                    f"gradients are required, and {min(inconclusive)} is not finite on too much of any inputs"
                )
            self.outcome.gradients = Gradients.PARTIAL
            self.outcome.note_once(
                [
                    f"{name} is not finite on too much of any inputs to be compared as a whole"
                    for name in sorted(inconclusive)
                ]
            )
        if self._gradients_required and self.outcome.gradients is not Gradients.MATCH:
            self._conclude(
                Verdict.WRONG_GRADIENT, "gradients are required, and not all of them could be compared: see the notes"
            )

    def _call_between_others(self, variant: Variant, *, spot_check: bool) -> CallFindings:
        """Run a forward and backward as between other calls of a training, and return the findings.

        A step has moved the weights before, and another forward runs before the backward. Weights that must stay
        unchanged leave training without a figure.

        An error that occurs once with moved weights, and not in two calls without, is attributed to them. A race that
        shows in a single call would show in one of several dozen verified calls.
        """

        def call(names: Sequence[str] = (), kind: Variant = variant, *, interleaved: bool = True) -> CallFindings:
            between = self._interleaved(kind) if interleaved else contextlib.nullcontext()
            with self._weights_moved(names), between:
                return self._call(CallMode.BACKWARD, kind, spot_check=spot_check, noted=False)[1]

        moved, names = CallFindings(), self._movable_weights()
        # Where one kind of inputs is inconclusive, another one may be conclusive.
        for kind in dict.fromkeys((variant, self._context.kind_of(CallMode.BACKWARD))) if names else ():
            try:
                moved = call(names, kind)
            except ProblemError:  # the reference takes no such values
                break
            if moved.verdict is not None or not moved.inconclusive:
                break
        found = moved
        if moved.verdict is not None or moved.inconclusive or not moved.tallies:
            found = call()
        if found.verdict is not None:
            if call(interleaved=False).verdict is None:
                found.message = f"{_CALLED_ONCE_MORE}, {found.message}"
        elif moved.verdict is not None:
            again = call()
            if again.verdict is None:
                self._kept_weights = tuple(names)
            else:
                found = again
        self._note_errors(found, variant, with_native=True)
        return found

    @contextlib.contextmanager
    def _interleaved(self, variant: Variant) -> Iterator[None]:
        """Run another forward between each forward and its backward, where there is memory for it. State of one call
        must be kept with its graph, and not on the module."""
        known = self._context.plan.runner_bytes, self.caller.peak_bytes[self.candidate.name]
        if self._context.plan.lean or max(known) > _INTERLEAVED_BYTES:
            yield
            return
        with self.caller.interleaved(self.candidate, variant):
            try:
                yield
            except RunnerFailed as error:
                raise RunnerFailed(error.failure, f"{_CALLED_ONCE_MORE}: {error.text}") from None

    def _movable_weights(self) -> list[str]:
        """Return the trained weights of which the candidate takes other values. None where they are too large to be
        kept twice, or where no training figure depends on them."""
        common = self._context
        weights = common.reference.signature.weights
        total_bytes = sum(spec.size_bytes for _, spec in weights)
        if self.outcome.gradients is not Gradients.MATCH or total_bytes > _MOVED_BYTES:
            return []
        report = self.candidate.link.weight_report()
        taken = report.taking & report.counterparts
        fixed = {*common.variation.unmoved(common.variation.each), *self._verifier.ambiguous_weights}
        movable = common.reference.trained - fixed
        return [name for place, (name, _) in enumerate(weights) if name in movable and taken >> place & 1]

    @contextlib.contextmanager
    def _weights_moved(self, names: Sequence[str]) -> Iterator[None]:
        """Give reference and candidate other values of these weights meanwhile, as after a step of training."""
        if not names:
            yield
            return
        common, held = self._context, self._values
        common.reference.set_state(held)
        values = common.reference.values_of(names)
        before = {**held, **values}
        places = [common.weight_names.index(name) for name in names]
        try:
            self._values = {**held, **stepped(values, self._device.generator())}
            with common.weights_shown(self._values):
                self.caller.step_weights(self.candidate, places)
            refusal: ProblemError | None = None
            try:
                yield
            except ProblemError as error:  # an error of the reference, after the call: the candidate goes on
                refusal = error
            with common.weights_shown(before):
                self.caller.step_weights(self.candidate, places)
            if refusal is not None:
                raise refusal
        finally:
            self._values = held
            common.reference.set_state(before)  # the calls of other candidates do not depend on it

    def _note_kept_weights(self) -> None:
        self.outcome.details.setdefault("parameters", {})["kept"] = [*self._kept_weights]
        note = "training: no figure, since what was made of the weights is kept, and wrong once these have changed"
        self.outcome.note_once([note])

    def measure(self, track: Track) -> Sampling:
        """Sample one track: yield requests for pairs, and return the figures (see ``record``)."""
        return self._sampler.measure(track)

    def record(self, track: Track, measured: Measured) -> None:
        """Take the figures of one track into the outcome."""
        if track is TRAINING and self._kept_weights:
            self.outcome.record_fixed_training(measured)
            return
        self.outcome.record(track, measured)
        if track.cold and not measured.unsettled:
            self._record_roofline(track, measured.latency)

    def _record_roofline(self, track: Track, latency: Latency) -> None:
        common, outcome = self._context, self.outcome
        try:
            work = known_work(
                (common.problem.id, common.problem.version, self._config.size, self._config.precision, common.training),
                lambda: count_work(
                    common.reference, lambda: common.source.draw(secrets.randbits(63)), training=common.training
                ),
            )
            precision = "tf32" if common.tolerances.in_tf32 else self._config.precision
            found = share_of_roofline(work[track.name], self._device.peak_rates(), precision, latency.candidate)
        except Exception as error:  # noqa: BLE001 - a reference may raise anything; what is measured stands without
            outcome.note_once([f"no roofline: the reference's work cannot be counted: {error}"])
            return
        outcome.record_roofline(track, found)
        outcome.note_once([note for note in [found.note(track.name)] if note is not None])

    def sample(self, track: Track) -> TimedCall:
        """Make one timed call of the candidate and verify it. An inconclusive call is repeated. Raises ``ProblemError``
        where the repeated calls are inconclusive as well."""
        kind = self._context.kind_of(track.mode)
        for _ in range(_CALLS_FOR_ONE):
            call, findings = self._call(track.mode, kind, spot_check=True, cold=track.cold, with_native=False)
            self._conclude_if_wrong(findings)
            if track.mode is CallMode.BACKWARD and findings.gradients is not Gradients.MATCH:
                self._conclude(
                    Verdict.WRONG_GRADIENT, f"gradients were {findings.gradients} in a timed call, not before"
                )
            if not findings.inconclusive:
                return call
        raise ProblemError(f"the reference is not finite on too much of the inputs of timed calls ({kind.value})")

    def _try_baseline(self, track: Track) -> None:
        """Call the baseline where nothing is timed: otherwise it would never run, and its errors would not be found."""
        if not self._config.sampling.max_samples:
            self._baseline_session.sample(track)

    def _call(
        self,
        mode: CallMode,
        variant: Variant,
        *,
        spot_check: bool = False,
        cold: bool = True,
        with_native: bool = True,
        noted: bool = True,
    ) -> tuple[TimedCall, CallFindings]:
        if time.monotonic() > self._context.deadline:
            raise RunnerTimeout(f"the evaluation took longer than {self._config.limits.total_s:.0f} s in all")
        timeout_s = self._call_limit_s(mode)
        while True:
            call, commitment = self.caller.call(
                self.candidate, mode, variant, timeout_s, spot_check=spot_check, cold=cold
            )
            timeline = Timeline()
            self._context.reference.set_state(self._values)
            if call.report.device_ms <= 0:
                raise Violation("the runner reported a call that took no time")
            if mode is CallMode.FORWARD:
                findings = self._verifier.verify_outputs(commitment, variant, with_native=with_native)
            else:
                counterparts = self.candidate.link.weight_report().counterparts
                findings = self._verifier.verify_gradients(
                    commitment, call.report, counterparts, variant, with_native=with_native
                )
            timeline.note("comparison")
            if findings.verdict is None or self.caller.has(self.candidate, commitment):
                break
        call = replace(call, steps_ms={**call.steps_ms, **timeline.ms})
        if findings.verdict is None and findings.inconclusive and variant is self._context.kind_of(mode):
            USUAL_PROBLEMS.note(self._context.problem_key, usual=False)
        if noted:
            if not spot_check or self._context.plan.lean:
                self.measure_memory()
            self._note_errors(findings, variant, with_native=with_native)
        return call, findings

    def _call_limit_s(self, mode: CallMode) -> float:
        limits = self._config.limits
        self._calls[mode] += 1
        if self._calls[mode] <= _MAY_COMPILE:
            return limits.call_s + limits.late_build_s
        baseline_ms = self.caller.baseline_ms.get(mode)
        return limits.later_call_s(max(baseline_ms) / 1000 if baseline_ms else None)

    def _floor_ms(self, _track: Track) -> float:
        """Return the least time for moving the outputs and the inputs that they depend on, in milliseconds."""
        signature = self._context.reference.signature
        moved = sum(spec.size_bytes for spec in signature.outputs)
        for index, spec in enumerate(signature.float_inputs):
            moved += int(spec.size_bytes * self._verifier.influence.get(index, 0.0))
        return self._device.floor_ms(moved)

    def measure_memory(self) -> None:
        """Note the device memory in use. With several candidates, it cannot be attributed to one of them."""
        if self._context.candidates > 1:
            return
        # All programs share a CPU's memory; a CUDA device has only the judge and its runners.
        foreign = self._context.used_before if self._device.torch_device.type == "cpu" else 0
        self._peak_bytes = max(self._peak_bytes, self._context.used_bytes - foreign - self._context.spare_bytes)

    def note_memory(self, *, baseline_peak_bytes: int, grown_bytes: int | None) -> None:
        """Note the peaks that the runners' allocators report, and the growth of the device's allocated memory since the
        candidate's construction, where it is known."""
        # With a lean plan, both sides give back what they hold, and reserve it again.
        if self._device.asynchronous and not self._context.plan.lean:
            self.outcome.details["memory"] = {
                "candidate_peak_bytes": self.caller.peak_bytes["candidate"],
                "baseline_peak_bytes": baseline_peak_bytes,
                **({} if grown_bytes is None else {"grown_bytes": grown_bytes}),
            }

    def _note_errors(self, findings: CallFindings, variant: Variant, *, with_native: bool) -> None:
        details = self.outcome.details
        for tally in findings.tallies:
            if tally.total:
                if with_native:  # otherwise the share is not known for all elements that are right
                    self._conclusive_share[tally.name] = max(
                        self._conclusive_share.get(tally.name, 0.0), tally.conclusive_share
                    )
                if tally.conclusive_share < 1.0:
                    shares = details.setdefault("telling_share", {}).setdefault(tally.name, {})
                    shares[variant.value] = min(shares.get(variant.value, 1.0), tally.conclusive_share)
                if tally.name in self._output_names:
                    # Only the trials count, because they have the errors of the reference's native precision. Otherwise
                    # a side with more calls would look less exact.
                    if with_native or not tally.passed:
                        self._max_abs = max(self._max_abs or 0.0, tally.max_abs)
                        self._max_rel = max(self._max_rel or 0.0, tally.max_rel)
                    if with_native and tally.reference_max_rel is not None:
                        self._reference_max_rel = max(self._reference_max_rel or 0.0, tally.reference_max_rel)
                elif with_native or not tally.passed:
                    worst = details.setdefault("gradient_max_abs", {})
                    worst[tally.name] = max(worst.get(tally.name, 0.0), tally.max_abs)
                if tally.widened > 1.0:
                    widened = details.setdefault("tolerance_widened", {})
                    widened[tally.name] = max(widened.get(tally.name, 1.0), tally.widened)
                if tally.capped > _CAPPED:
                    capped = details.setdefault("tolerance_capped", {})
                    capped[tally.name] = max(capped.get(tally.name, 0.0), tally.capped)

    def _conclude_if_wrong(self, findings: CallFindings) -> None:
        if findings.verdict is not None:
            if self._varied:
                raise _WrongOnceVaried
            self.outcome.gradients = (
                Gradients.MISMATCH if findings.verdict is Verdict.WRONG_GRADIENT else self.outcome.gradients
            )
            if findings.mismatch is not None:
                self.outcome.details["mismatch"] = findings.mismatch
            weights = self._describe_weights()
            if weights:
                self.outcome.details["weights"] = weights
            self._conclude(findings.verdict, "; ".join([findings.message, *sentences_about(weights)]))

    def _describe_weights(self) -> dict[str, Any]:
        """Describe the reference's weights that differ in the candidate, with names and shapes.

        These are parameters without a counterpart, transposed parameters, and parameters and buffers with another value
        after both constructions.
        """
        signature, found = self._context.reference.signature, self._found
        state = [*signature.weights, *signature.buffers]
        alone = [
            place
            for place, (name, _) in enumerate(state)
            if not (found.taking | found.counterparts | found.differing) >> place & 1
            and (place < len(signature.weights) or name in self._context.reference.constants)
        ]
        differing = [place for place in range(len(state)) if found.differing >> place & 1]
        transposed = [place for place in range(len(signature.weights)) if found.transposed >> place & 1]
        groups = {"without_counterpart": alone, "differing": differing, "transposed": transposed}
        return {
            group: [{"name": state[place][0], "shape": list(state[place][1].shape)} for place in places]
            for group, places in groups.items()
            if places
        }

    def _conclude(self, verdict: Verdict, message: str) -> None:
        self.outcome.note_verdict(verdict, message)
        raise Concluded

    def finish(self) -> None:
        """Record the final error figures and peak memory, for any verdict."""
        self.outcome.errors = ErrorFigures(self._max_abs, self._max_rel, self._reference_max_rel)
        self.outcome.peak_memory_bytes = self._peak_bytes or None

    def _cycle(self, variants: Sequence[Variant], count: int) -> Iterator[Variant]:
        usable = [variant for variant in variants if self._context.source.available(variant)]
        return (usable[number % len(usable)] for number in range(count))


def _finite(outputs: Sequence[torch.Tensor]) -> dict[tuple[int, tuple[int, ...]], int]:
    """Return the number of finite elements, by the number and shape of an output."""
    return {(index, tuple(output.shape)): int(torch.isfinite(output).sum()) for index, output in enumerate(outputs)}


def _differ(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two outputs of the reference in float64 differ by more than rounding."""
    if not one.is_floating_point():
        return not torch.equal(one, other)
    usable = torch.isfinite(one)
    if not torch.equal(usable, torch.isfinite(other)):
        return True
    one, other = one[usable], other[usable]
    scale = one.square().mean().sqrt() if one.numel() else torch.zeros(())
    return bool(((one - other).abs() > _DIFFERS * scale).any())
