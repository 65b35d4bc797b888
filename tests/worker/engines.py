"""A small engine with the real interface, steered by the candidate's source, for tests of the workers.

The source is a list of ``stage: what`` lines, say ``# evaluate: sleep 2``; what it does not mention
passes at once. ``# evaluate: overrun`` ends with a device fault, ``# diagnose: overrun`` finds one at any
size, ``# diagnose: overrun-when-full`` at the full one. It knows the candidates of the self-test.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from evaluator.candidates.candidate import Candidate
from evaluator.config import EvalConfig
from evaluator.engine import BuildReport, Callbacks, GroupResults, Progress, SandboxLayer
from evaluator.errors import (
    DeviceUnavailable,
    DoesNotFit,
    EvaluationCancelled,
    EvaluatorError,
    InfrastructureFault,
    ToolchainMissing,
)
from evaluator.evaluation import Evaluation, Gradients, Verdict
from evaluator.problems.problem import Problem
from kerneljudge.terms.findings import Diagnosis, Fault, Tool


class ScriptedEngine:
    """Does what the candidate's source says. ``journal`` is a file with a line for all that it did.

    ``together``: so many candidates are evaluated together, one after the other. ``lenient``: it lets pass what
    vetting tries.
    """

    def __init__(
        self, journal: Path, tools: Collection[Tool] = (), together: int = 1, *, lenient: bool = False
    ) -> None:
        self._lenient = lenient
        self._journal = journal
        self._tools = frozenset(tools)
        self._together = together
        self._running = False
        self._evaluating = False

    @property
    def environment(self) -> Mapping[str, Any]:
        return {"device_name": "a scripted device", "torch": "2.9"} if self._running else {}

    @property
    def layers(self) -> tuple[SandboxLayer, ...]:
        return (
            SandboxLayer("files", there=True, optional=False, meaning="it reads files"),
            SandboxLayer("cgroup", there=False, optional=True, meaning="memory is limited for each process"),
        )

    @property
    def process_ids(self) -> Mapping[str, int]:
        return {}

    def start(self) -> None:
        assert not self._running
        self._running = True
        self._note("start")

    def close(self) -> None:
        assert not self._evaluating
        if self._running:
            self._note("close")
        self._running = False

    def keeps_baseline(self, config: EvalConfig) -> bool:
        return config.baseline == "eager"

    def start_ahead(self) -> None:
        """There is nothing to be started."""

    def build(
        self,
        problem: Problem,
        candidate: Candidate,
        config: EvalConfig,
        callbacks: Callbacks,
    ) -> BuildReport:
        refused = self._follow("build", candidate, config, callbacks) == "refuse"
        evaluation = _evaluation(problem, config, Verdict.COMPILE_ERROR, "line 3: no") if refused else None
        return BuildReport(evaluation, seconds=0.25, extensions=1, cached=0, log="built\n")

    def evaluate(
        self,
        problem: Problem,
        candidate: Candidate,
        config: EvalConfig,
        callbacks: Callbacks,
    ) -> Evaluation:
        if problem.id == "self-test":
            return self._self_test(problem, candidate, config)
        if "class Finding(Exception)" in candidate.source:
            return self._vet(problem, candidate, config)
        if self._follow("evaluate", candidate, config, callbacks) == "overrun":
            fault = {"device_fault": "illegal memory access"}
            return replace(_evaluation(problem, config, Verdict.RUNTIME_ERROR, "CUDA error"), details=fault)
        evaluation = _evaluation(problem, config, Verdict.PASSED, "it passed", speedup=2.0)
        # Something that no database can hold.
        return replace(evaluation, details={"what": object()}) if "unstorable" in candidate.source else evaluation

    def _vet(self, problem: Problem, candidate: Candidate, config: EvalConfig) -> Evaluation:
        """Right is the reference, with what looks at it or without."""
        self._note("vet")
        right = self._lenient or "raise Finding" in candidate.source or candidate.source.endswith("    pass\n")
        return _evaluation(problem, config, Verdict.PASSED if right else Verdict.WRONG_OUTPUT, "")

    def max_group_size(self, problem: Problem, config: EvalConfig) -> int:  # noqa: ARG002 - the interface
        return self._together if config.baseline == "eager" else 1

    def evaluate_group(
        self, problem: Problem, candidates: Sequence[Candidate], config: EvalConfig, callbacks: Sequence[Callbacks]
    ) -> GroupResults:
        assert 1 < len(candidates) <= self._together
        self._note(f"together {len(candidates)}")
        self._evaluating = True
        try:
            for index, candidate in enumerate(candidates):
                result: Evaluation | EvaluatorError
                try:
                    if callbacks[index].cancelled():
                        raise EvaluationCancelled("stopped before it began")
                    result = self.evaluate(problem, candidate, config, callbacks[index])
                except (InfrastructureFault, DeviceUnavailable):
                    time.sleep(0.2)  # as long as it takes to clean up
                    raise
                except EvaluatorError as error:
                    result = error
                yield index, result
        finally:
            self._evaluating = False

    def _self_test(self, problem: Problem, candidate: Candidate, config: EvalConfig) -> Evaluation:
        """As a judge would have it, unless there is a file ``blind`` beside the journal: then everything passes."""
        verdict = Verdict.PASSED
        if not self._journal.with_name("blind").exists():
            kinds = {"x.abs()": Verdict.WRONG_OUTPUT, "SIGSEGV": Verdict.RUNTIME_ERROR}
            verdict = next((kinds[mark] for mark in kinds if mark in candidate.source), verdict)
        return _evaluation(problem, config, verdict, "it is a test")

    @property
    def tools(self) -> frozenset[Tool]:
        return self._tools

    def diagnose(
        self,
        problem: Problem,
        candidate: Candidate,
        config: EvalConfig,
        tool: Tool,
        *,
        cancelled: Callable[[], bool],
    ) -> Diagnosis:
        action = self._follow("diagnose", candidate, config, Callbacks(cancelled=cancelled))
        fault = Fault("Invalid write", "relu", "cuda.cu", 8, 3, "x[i] = 0;", (1, 0, 0), (2, 0, 0))
        found = action == "overrun" or (action == "overrun-when-full" and config.size == "full")
        return Diagnosis(
            tool,
            problem.id,
            config.device.partition(":")[0],
            config.size,
            config.precision,
            "forward" if found else "done",
            seconds=0.5,
            faults=(fault,) if found else (),
            printed="it ran\n",
        )

    def _follow(
        self,
        stage: str,
        candidate: Candidate,
        config: EvalConfig,
        callbacks: Callbacks,
    ) -> str:
        assert self._running
        self._note(f"{stage} {config.device} {config.size} {config.require_gradients}")
        steps = [line.removeprefix(f"# {stage}: ") for line in candidate.source.splitlines() if f"# {stage}: " in line]
        action, _, argument = (steps or ["pass"])[0].partition(" ")
        if action == "sleep":
            until = time.monotonic() + float(argument)
            callbacks.progress(Progress("trials", f"asleep for {argument} s", 0.5))
            while time.monotonic() < until:
                if callbacks.cancelled():
                    self._note(f"{stage} stopped")
                    raise EvaluationCancelled("stopped")
                time.sleep(0.02)
        elif action == "fault":
            raise InfrastructureFault("the judge died")
        elif action == "device":
            raise DeviceUnavailable("the device is gone")
        elif action == "toolchain":
            raise ToolchainMissing("no compiler")
        elif action == "big":
            raise DoesNotFit("needs 3 GiB, has 2 GiB")
        elif action == "bug":
            raise KeyError("surprise")
        self._note(f"{stage} done")
        return action

    def _note(self, line: str) -> None:
        with self._journal.open("a") as journal:
            journal.write(line + "\n")


def _evaluation(
    problem: Problem, config: EvalConfig, verdict: Verdict, message: str, speedup: float | None = None
) -> Evaluation:
    return Evaluation(
        verdict=verdict,
        message=message,
        problem=problem.id,
        problem_version=problem.version,
        device=config.device,
        size=config.size,
        precision=config.precision,
        gradients=Gradients.MATCH if speedup else Gradients.NOT_CHECKED,
        speedup=speedup,
        environment={"device_name": "a scripted device"},
    )
