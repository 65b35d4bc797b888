"""Evaluation on this machine, without a service."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

from evaluator.candidates.candidate import Candidate, InvalidSource, parse_candidate
from evaluator.config import EvalConfig, SamplingPlan
from evaluator.devices.discovery import available_devices, has_nvcc
from evaluator.errors import DeviceUnavailable, EvaluatorError, InfrastructureFault
from evaluator.evaluation import Evaluation
from evaluator.feedback.feedback import feedback
from evaluator.problems.memory_check import Planned, plan_each
from evaluator.problems.problem import Problem
from evaluator.problems.shapes import full_name
from evaluator.problems.vetting import Vetting
from evaluator.progress import NO_CALLBACKS, Callbacks, Progress
from kerneljudge.cli.output import BadUsage
from kerneljudge.grading.local_record import blank_record, failed_record
from kerneljudge.grading.option_texts import tier_given
from kerneljudge.grading.sources import Given, UnusableFile
from kerneljudge.records import ShapeFiguresRecord, SubmissionRecord, TimelineRecord
from kerneljudge.terms.findings import Diagnosis, Tool
from kerneljudge.terms.limits import parse_limits
from kerneljudge.terms.outcomes import Status, Verdict
from kerneljudge.terms.rules import parse_rules
from kerneljudge_server.folders import cache_dir
from kerneljudge_server.kept_vettings import vetted

if TYPE_CHECKING:
    from evaluator.engine import BuildReport, Engine

__all__ = [
    "Bench",
    "Outcome",
    "candidate_of",
    "configure",
    "default_device",
    "diagnose",
    "evaluate",
    "plan",
    "vet",
]

Show = Callable[[str, str, float | None], None]


@dataclass(frozen=True)
class Outcome:
    """A record, the output of compiler and candidate, and the candidate's timed forwards in milliseconds."""

    record: SubmissionRecord
    log: str
    samples_ms: tuple[float, ...] = ()


class Bench:
    """One engine for many candidates, one after another. A context manager; the engine starts with the first use.

    Raises ``DeviceUnavailable`` where this machine has no ``device``.
    """

    def __init__(self, device: str, *, require_sandbox: bool) -> None:
        if not _is_present(device):
            raise DeviceUnavailable(f"this machine has no device {device}; grade with --device cpu, or name a --url")
        self._device = device
        self._require_sandbox = require_sandbox
        self._engine: Engine | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop()

    def grade(self, problem: Problem, candidate: Candidate | InvalidSource, config: EvalConfig) -> Outcome:
        """Compile, judge and measure ``candidate``.

        A fault of ours gives a record with status ``failed``, not an error.

        Raises ``SandboxIncomplete`` and ``ToolchainMissing`` where nothing can be graded on this machine at all.
        """
        started = _now()
        if isinstance(candidate, InvalidSource):
            invalid = _invalid(problem, candidate, config)
            return Outcome(
                _record(problem, config, invalid, candidate.source, {"submitted": started, "finished": _now()}), ""
            )
        engine: Engine | None = None
        try:
            engine = self._running()
            outcome = _judge(engine, problem, candidate, config, NO_CALLBACKS)
            engine.start_ahead()
            return outcome
        except EvaluatorError as error:
            if isinstance(error, InfrastructureFault | DeviceUnavailable):
                # The old processes must not judge anything more.
                self._stop()
            elif engine is None:
                raise  # a requirement that this machine lacks is missing for every candidate
            known = {name: getattr(config, name) for name in ("size", "precision", "baseline", "require_gradients")}
            known["rules"] = config.rules.to_dict()
            failed = failed_record(problem.id, str(error), device=config.device_kind, **known)
            failed["timeline"] |= {"submitted": started, "finished": _now()}
            return Outcome(failed, "")

    def _running(self) -> Engine:
        from evaluator import engine as machinery  # noqa: PLC0415 - see evaluate

        if self._engine is None:
            engine = machinery.Engine(device=self._device, cache_dir=cache_dir(), require_sandbox=self._require_sandbox)
            engine.start()
            self._engine = engine
        return self._engine

    def _stop(self) -> None:
        if self._engine is not None:
            self._engine.close()
            self._engine = None


def candidate_of(given: Given) -> Candidate | InvalidSource:
    """Return the candidate in a given text."""
    return parse_candidate(code=given.code, response=given.response)


def default_device() -> str:
    """Return ``cuda`` where this machine has such a device, else ``cpu``."""
    return "cuda" if any(name.startswith("cuda") for name in available_devices()) else "cpu"


def configure(
    problem: Problem,
    device: str | None,
    size: str | None,
    precision: str | None,
    require_gradients: bool | None,
    baseline: str = "eager",
    *,
    compiled: bool = False,
    limits: str = "",
    tier: str = "full",
    rules: str = "",
) -> EvalConfig:
    """Return the configuration that judges ``problem`` here: the given options, and defaults for the rest.

    ``compiled`` is ``EvalConfig.compare_compiled``. ``limits`` is a text for ``parse_limits``; ``KERNELJUDGE_LIMITS``
    has those of this machine. ``tier`` is one of ``TIERS``. ``rules`` is a text for ``parse_rules``. Raises
    ``BadUsage``.
    """
    if compiled and tier_given(tier) != "full":
        raise BadUsage("--compiled compares figures of the tier full")
    device = device or default_device()
    size = size or problem.default_size(device.partition(":")[0])
    if size not in problem.sizes:
        raise BadUsage(f"problem {problem.id} has no size {size!r}; it has {', '.join(problem.sizes)}")
    try:
        config = EvalConfig(
            device=device,
            size=size,
            precision=precision or problem.dtype,
            baseline=baseline,
            require_gradients=require_gradients,
            compare_compiled=compiled,
            limits=problem.limits_here(parse_limits(os.environ.get("KERNELJUDGE_LIMITS", "")), parse_limits(limits)),
            sampling=SamplingPlan.usual(device.partition(":")[0], size, tier_given(tier)),
            rules=parse_rules(rules),
        )
    except ValueError as error:
        raise BadUsage(str(error)) from error
    refusal = problem.refuses_baseline(config) or problem.refuses_rules(config.rules)
    if refusal is not None:
        raise BadUsage(refusal)
    return config


def evaluate(
    problem: Problem,
    candidate: Candidate | InvalidSource,
    config: EvalConfig,
    show: Show,
    *,
    require_sandbox: bool = False,
) -> Outcome:
    """Compile, judge and measure ``candidate`` here. Raises ``EvaluatorError`` for faults other than the candidate's.

    For a device that this machine lacks, the candidate is compiled all the same, so that its compile errors show.
    Without compile errors, ``DeviceUnavailable`` is raised. With ``require_sandbox``, nothing is run where a layer of
    the sandbox is missing, and ``SandboxIncomplete`` is raised.
    """
    started = _now()
    if isinstance(candidate, InvalidSource):
        invalid = _invalid(problem, candidate, config)
        times = {"submitted": started, "finished": _now()}
        return Outcome(_record(problem, config, invalid, candidate.source, times), "")

    # It is imported here, because the other commands do not need the evaluator's engine.
    from evaluator.engine import Engine  # noqa: PLC0415

    def pass_on(progress: Progress) -> None:
        show(progress.stage, progress.message, progress.share)

    present = _is_present(config.device)
    if not present:
        _refuse_without_compiler(config.device)
    device = config.device if present else None
    with Engine(device=device, cache_dir=cache_dir(), require_sandbox=require_sandbox, prepares_next=False) as engine:
        return _judge(engine, problem, candidate, config, Callbacks(pass_on), present=present)


def _judge(
    engine: Engine,
    problem: Problem,
    candidate: Candidate,
    config: EvalConfig,
    callbacks: Callbacks,
    *,
    present: bool = True,
) -> Outcome:
    """Build and evaluate on ``engine``. ``present`` says whether it has the device. Raises the engine's errors."""
    started = _now()
    built = engine.build(problem, candidate, config, callbacks)
    times = {"submitted": started, "built": _now()}
    evaluation = built.evaluation
    if evaluation is None:
        if not present:
            raise DeviceUnavailable(_no_device(config.device, built))
        times["started"] = _now()
        evaluation = engine.evaluate(problem, candidate, config, callbacks)
        evaluation = vetted(engine, problem, config, evaluation, callbacks.progress)
    record = _record(problem, config, evaluation, candidate.source, {**times, "finished": _now()})
    record["environment"] = dict(evaluation.environment or engine.environment)
    record["stage_s"] = {"building": built.seconds, **record["stage_s"]}
    log, timed = evaluation.log, evaluation.samples.get("inference")
    return Outcome(
        record,
        log if log.startswith(built.log) else built.log + log,
        () if timed is None else timed.candidate_device_ms,
    )


def diagnose(
    problem: Problem, candidate: Candidate | InvalidSource, config: EvalConfig, tool: Tool, *, require_sandbox: bool
) -> Diagnosis:
    """Run ``candidate`` once under ``tool``, here.

    Raises ``EvaluatorError`` for faults other than the candidate's, and ``UnusableFile`` for a source that cannot be
    run.
    """
    if isinstance(candidate, InvalidSource):
        raise UnusableFile(candidate.message)
    if not _is_present(config.device):
        raise DeviceUnavailable(f"this machine has no device {config.device}: a diagnosis runs the candidate on one")

    from evaluator.engine import Engine  # noqa: PLC0415 - see evaluate

    with Engine(device=config.device, cache_dir=cache_dir(), require_sandbox=require_sandbox) as engine:
        return engine.diagnose(problem, candidate, config, tool)


def plan(
    problems: Sequence[Problem], size: str | None, precisions: Sequence[str] | None, memory_gib: float
) -> Iterator[Planned]:
    """Yield the memory that each problem needs on a GPU of the given size, at each precision, and at each shape of its
    size. No GPU is needed.

    Raises ``BadUsage``, and ``EvaluatorError`` for a fault of ours.
    """
    wanted = [
        (problem, size_or_shape, config.precision)
        for problem in problems
        for precision in dict.fromkeys(precisions or [problem.dtype])
        for config in [configure(problem, "cuda", size, precision, None)]
        for size_or_shape in (config.size, *(full_name(config.size, each) for each in problem.shapes_of(config.size)))
    ]
    yield from plan_each(wanted, round(memory_gib * 2**30))


def vet(problems: Sequence[tuple[Problem, EvalConfig]], show: Show) -> Iterator[Vetting]:
    """Vet each problem at the given size and precision, one after another, all on the device of the first.

    Raises ``EvaluatorError`` for a fault of ours.
    """
    from evaluator.engine import Engine  # noqa: PLC0415 - as above
    from evaluator.problems.vetting.run import vet as vet_one  # noqa: PLC0415

    device = problems[0][1].device
    with Engine(device=device, cache_dir=cache_dir()) as engine:
        for problem, config in problems:

            def report(name: str, number: int, most: int, problem: str = problem.id) -> None:
                show(problem, name, number / most)

            yield vet_one(problem, engine, device, config.size, report, precision=config.precision)


def _record(
    problem: Problem, config: EvalConfig, evaluation: Evaluation, source: str, times: dict[str, str]
) -> SubmissionRecord:
    known = {
        **_evaluation_fields(evaluation),
        "feedback": feedback(evaluation, source),
        "device": config.device_kind,
        "status": str(Status.DONE),
        "require_gradients": config.require_gradients,
        "rules": config.rules.to_dict(),
    }
    record = blank_record(problem.id, **known)
    record["timeline"] |= cast(TimelineRecord, times)
    return record


def _evaluation_fields(evaluation: Evaluation) -> dict[str, Any]:
    """Return the fields of a record that an evaluation provides."""
    found = evaluation.to_dict()
    for not_in_a_record in ("samples", "log"):
        del found[not_in_a_record]
    names = ShapeFiguresRecord.__annotations__
    found["shapes"] = {shape: {name: each[name] for name in names} for shape, each in found["shapes"].items()}
    return {**found, "hints": list(evaluation.hints), "notes": list(evaluation.notes)}


def _invalid(problem: Problem, invalid: InvalidSource, config: EvalConfig) -> Evaluation:
    return Evaluation(
        verdict=Verdict.INVALID_SOURCE,
        message=invalid.message,
        problem=problem.id,
        problem_version=problem.version,
        device=config.device_kind,
        size=config.size,
        precision=config.precision,
        hints=invalid.hints,
    )


def _is_present(device: str) -> bool:
    present = available_devices()
    return device in present or (device == "cuda" and "cuda:0" in present)


def _refuse_without_compiler(device: str) -> None:
    if not has_nvcc():
        raise DeviceUnavailable(
            f"this machine has no device {device}, and no nvcc to compile for one; "
            "evaluate with --device cpu, or hand it in to a service with kerneljudge submit"
        )


def _no_device(device: str, built: BuildReport) -> str:
    if built.toolchain_gap is not None:
        compiled = f"it could not be compiled here ({built.toolchain_gap})"
    elif built.extensions:
        compiled = f"it compiles ({built.extensions} extension{'s' * (built.extensions != 1)})"
    else:
        compiled = "it has no extension to compile"
    return (
        f"{compiled}, and this machine has no device {device} to run it on; "
        "hand it in to a service that has one with kerneljudge submit"
    )


def _now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")
