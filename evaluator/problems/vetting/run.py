"""Vetting a problem: each candidate of ``probes`` is judged as a user's would be, and labels name the findings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

from evaluator.candidates.candidate import Candidate, parse_candidate
from evaluator.config import EvalConfig, SamplingPlan
from evaluator.errors import ProblemError
from evaluator.evaluation import Evaluation, Gradients, Verdict
from evaluator.problems.problem import Problem, Tolerance
from evaluator.problems.vetting.probes import (
    ABSENT_CONSTANTS,
    BACKWARD_PROBE,
    DRAWS,
    HALVES,
    INITIAL_CONSTANTS,
    INITIAL_RELATIONS,
    ITSELF,
    PROBES,
    TF32,
    TRIVIAL,
    ZERO_GRADIENTS,
    Trivial,
    find,
    source_of,
)
from evaluator.problems.vetting_record import Check, Inputs, Vetting
from kerneljudge.terms.rules import NO_RULES
from kerneljudge.terms.vetting_labels import REFUSALS, Label

__all__ = ["Judge", "vet"]

_VERIFY_ONLY: Final = SamplingPlan(max_samples=0)
_TWO_CALLS: Final = SamplingPlan(trials=2, gradient_trials=0, max_samples=0)
_A_FEW_CALLS: Final = SamplingPlan(trials=2, gradient_trials=1, max_samples=0)
_ONE_CALL: Final = SamplingPlan(trials=1, gradient_trials=0, max_samples=0)
_BROKE: Final = (None, Verdict.LOAD_ERROR, Verdict.CONSTRUCT_ERROR, Verdict.RUNTIME_ERROR)
_NO_ANSWER: Final = (*_BROKE, Verdict.TIMEOUT, Verdict.OUT_OF_MEMORY)
_HOPELESS: Final = {Label.REFERENCE_FAILS, Label.NONDETERMINISTIC, Label.OUTPUT_DRIFTS, Label.INPUTS_REPEAT}
"""Labels that end the vetting. The judge takes the expected values from the reference, and a reference that disagrees
with itself has none. It judges nothing on inputs that repeat.
"""
_WITHOUT_BACKWARD: Final = {Label.BACKWARD_FAILS, Label.BACKWARD_NONDETERMINISTIC}
"""Labels after which the rest is tested without gradients."""
_LEAST_TELLING: Final = 0.5
"""The least comparable share of a tensor at which a kind of inputs tells anything about it."""
_MAX_CAPPED: Final = 0.1
"""The most elements of a tensor, as a share, that may exceed the cap of limits by the reference's own error. Fewer
occur by chance.
"""
_GRADIENT: Final = "the gradient of "
_REPEATS: Final = "get_inputs returns the same values in every call"
"""The judge's wording."""
_MESSAGE_CHARACTERS: Final = 300

Report = Callable[[str, int, int], None]


class Judge(Protocol):
    """The part of an engine that vetting uses."""

    @property
    def environment(self) -> Mapping[str, Any]: ...

    def evaluate(self, problem: Problem, candidate: Candidate, config: EvalConfig) -> Evaluation: ...


def vet(
    problem: Problem,
    judge: Judge,
    device: str,
    size: str,
    report: Report = lambda *_: None,
    *,
    precision: str | None = None,
) -> Vetting:
    """Vet ``problem`` at ``size`` on the judge's ``device``, at ``precision`` (default: its own).

    ``report`` receives each check, its number, and the number of all. Faults of the problem are in the ``Vetting``;
    other errors are those of ``Engine.evaluate``.
    """
    config = EvalConfig(device=device, size=size, precision=precision or problem.dtype)
    # Its probes are no candidates: rules about sources say nothing about the judge.
    trying = _Trying(replace(problem, rules=NO_RULES), judge, config, report)
    trying.run()
    labels = tuple(label for label in Label if label in trying.found)
    return Vetting(
        problem=problem.id,
        version=problem.version,
        device=trying.config.device_kind,
        size=size,
        precision=config.precision,
        torch=str(judge.environment["torch"]),
        labels=labels,
        refusals=tuple(_sentence(label, trying.found[label]) for label in labels if label in REFUSALS),
        checks=tuple(trying.checks),
    )


@dataclass
class _Trying:
    """One vetting under way. ``found``: each label with its evidence, which may be empty. ``settled``: the tolerance of
    outputs that follows from the reference's rounding to TF32; ``None`` where it is the problem's."""

    problem: Problem
    judge: Judge
    config: EvalConfig
    report: Report
    found: dict[Label, str] = field(default_factory=dict)
    checks: list[Check] = field(default_factory=list)
    settled: Tolerance | None = None

    def run(self) -> None:
        """Check the reference first, then its imitations; a finding that makes the rest meaningless ends it."""
        for name in PROBES:
            check = self._probe(name)
            # A probe takes more memory and time than the reference: running out of these is no finding.
            if check.message.startswith(_REPEATS):
                self.found.setdefault(Label.INPUTS_REPEAT, "")
            elif check.verdict in _BROKE and find(check.message) is None:
                self.found.setdefault(Label.REFERENCE_FAILS, check.message)
            if not _HOPELESS.isdisjoint(self.found):
                return
        if self.problem.gradient_policy != "none":
            self._probe(BACKWARD_PROBE)
            if not _WITHOUT_BACKWARD.isdisjoint(self.found):
                self.problem = replace(self.problem, gradient_policy="none")
        itself = self._itself()
        if not itself.passed:
            no_answer = itself.verdict in _NO_ANSWER
            self.found[Label.REFERENCE_FAILS if no_answer else Label.REFERENCE_DOES_NOT_PASS] = itself.message
            return
        if itself.gradients is Gradients.NOT_APPLICABLE:
            self.found[Label.NO_GRADIENT] = ""
        for trivial in TRIVIAL:
            self._try(trivial)
        if any(self._passes(name, Inputs.ALL) for name in (INITIAL_CONSTANTS, ABSENT_CONSTANTS)):
            self.found[Label.CONSTANT_PARAMETERS_LEFT_OUT] = ""
        if self._passes(INITIAL_RELATIONS, Inputs.ALL):
            self.found[Label.RELATIONS_COUNTED_ON] = ""
        if itself.gradients is Gradients.MATCH:
            held = self._check(ZERO_GRADIENTS, Inputs.ALL)
            if held.passed and held.gradients is Gradients.MATCH:
                self.found[Label.ZERO_GRADIENTS_PASS] = ""
        self._try_less_precision()

    def _itself(self) -> Check:
        """Check the reference as its own candidate; its own errors decide how wide limits become."""
        itself, details = self._judged(ITSELF, Inputs.ALL, _VERIFY_ONLY)
        tolerances: Mapping[str, Any] = details.get("tolerances", {})
        widest = max(tolerances.get("outputs", ()), key=lambda each: each["atol"] + each["rtol"], default=None)
        if widest is not None and widest != tolerances["stated"]:
            self.settled = Tolerance(**widest)
        for tensor, share in details.get("tolerance_capped", {}).items():
            label = Label.GRADIENT_LIMITS_CAPPED if tensor.startswith(_GRADIENT) else Label.LIMITS_CAPPED
            if share >= _MAX_CAPPED:
                self.found.setdefault(label, f"{tensor}, {100 * share:.3g} % of the elements")
        telling: Mapping[str, Mapping[str, float]] = details.get("telling_share", {})
        if any(share < _LEAST_TELLING for shares in telling.values() for share in shares.values()):
            self.found[Label.SILENT_INPUTS] = ""
        unmoved = details.get("parameters", {}).get("unmoved")
        if unmoved:
            self.found[Label.CONSTANT_PARAMETERS_UNMOVED] = ", ".join(unmoved)
        # Masks that the judge varies are not among them.
        if not {"same", "related"}.isdisjoint(details.get("inputs", {})):
            self.found[Label.INPUTS_COUNTED_ON] = ""
        return itself

    def _probe(self, name: str) -> Check:
        if name == DRAWS:  # all kinds: get_inputs' may have one sign, and the output be its sign
            check = self._check(name, Inputs.ALL, _TWO_CALLS)
        else:
            check = self._check(name, Inputs.GIVEN, _ONE_CALL)
        finding = find(check.message) if check.verdict is Verdict.RUNTIME_ERROR else None
        if finding is not None:
            self.found[finding.label] = finding.message
        return check

    def _try(self, trivial: Trivial) -> None:
        # The judge's inputs include the given ones: a candidate that fails on these alone fails on all.
        if self.problem.input_domain == "real" and not self._passes(trivial.name, Inputs.GIVEN, _A_FEW_CALLS):
            return
        passes = self._passes(trivial.name, Inputs.ALL)
        if passes or self.problem.input_domain == "real":
            self.found[trivial.passes if passes else trivial.passes_on_given_inputs] = ""

    def _try_less_precision(self) -> None:
        if self.config.precision != "float32":
            return
        # Where the reference itself rounds to TF32, the finding would say nothing.
        if self.config.device_kind == "cuda" and self.settled is None and self._check(TF32, Inputs.ALL).passed:
            self.found[Label.TF32_PASSES] = ""
        if any(self._check(half, Inputs.ALL).passed for half in HALVES):
            self.found[Label.HALF_PASSES] = ""

    def _passes(self, name: str, inputs: Inputs, sampling: SamplingPlan = _VERIFY_ONLY) -> bool:
        """Whether the candidate called ``name`` passes, with other values of constant parameters too.

        A candidate that is wrong with other values has no figure.
        """
        check, details = self._judged(name, inputs, sampling)
        return check.passed and not details.get("parameters", {}).get("fixed")

    def _check(self, name: str, inputs: Inputs, sampling: SamplingPlan = _VERIFY_ONLY) -> Check:
        """Have the candidate called ``name`` judged, and keep the result."""
        return self._judged(name, inputs, sampling)[0]

    def _judged(self, name: str, inputs: Inputs, sampling: SamplingPlan) -> tuple[Check, Mapping[str, Any]]:
        """Have the candidate judged; return the check, and the details of the evaluation."""
        self.report(name, len(self.checks), _most_checks(self.problem))
        candidate = parse_candidate(code=source_of(name, self.problem, self.config.precision, self.settled))
        assert isinstance(candidate, Candidate)
        config = replace(self.config, given_inputs_only=inputs is Inputs.GIVEN, sampling=sampling)
        details: Mapping[str, Any] = {}
        try:
            evaluation = self.judge.evaluate(self.problem, candidate, config)
        except ProblemError as error:
            check = Check(name, inputs, None, Gradients.NOT_CHECKED, _shortened(str(error)))
        else:
            details = evaluation.details
            check = Check(name, inputs, evaluation.verdict, evaluation.gradients, _shortened(evaluation.message))
        self.checks.append(check)
        return check, details


def _most_checks(problem: Problem) -> int:
    """The most checks that there can be."""
    return len(PROBES) + len(TRIVIAL) * (2 if problem.input_domain == "real" else 1) + len(HALVES) + 7


def _sentence(label: Label, message: str) -> str:
    """The sentence with the reason of the refusal by ``label``, and its evidence."""
    return f"{REFUSALS[label]} ({message})" if message else REFUSALS[label]


def _shortened(message: str) -> str:
    first, _, _rest = message.partition("\n  candidate.py, line ")
    return first if len(first) <= _MESSAGE_CHARACTERS else f"{first[: _MESSAGE_CHARACTERS - 1]}\N{HORIZONTAL ELLIPSIS}"
