"""The engine, as the tasks of a worker use it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from evaluator.candidates.candidate import Candidate
from evaluator.config import EvalConfig
from evaluator.engine import BuildReport, Callbacks, GroupResults, SandboxLayer
from evaluator.evaluation import Evaluation
from evaluator.problems.problem import Problem
from kerneljudge.terms.findings import Diagnosis, Tool

__all__ = ["GradingEngine"]


class GradingEngine(Protocol):
    """The part of ``evaluator.engine.Engine`` that a worker needs."""

    @property
    def environment(self) -> Mapping[str, Any]: ...

    @property
    def layers(self) -> tuple[SandboxLayer, ...]: ...

    @property
    def process_ids(self) -> Mapping[str, int]: ...

    def start(self) -> None: ...

    def close(self) -> None: ...

    def build(
        self, problem: Problem, candidate: Candidate, config: EvalConfig, callbacks: Callbacks
    ) -> BuildReport: ...

    def evaluate(
        self, problem: Problem, candidate: Candidate, config: EvalConfig, callbacks: Callbacks
    ) -> Evaluation: ...

    @property
    def tools(self) -> frozenset[Tool]: ...

    def keeps_baseline(self, config: EvalConfig) -> bool: ...

    def start_ahead(self) -> None: ...

    def max_group_size(self, problem: Problem, config: EvalConfig) -> int: ...

    def evaluate_group(
        self, problem: Problem, candidates: Sequence[Candidate], config: EvalConfig, callbacks: Sequence[Callbacks]
    ) -> GroupResults: ...

    def diagnose(
        self,
        problem: Problem,
        candidate: Candidate,
        config: EvalConfig,
        tool: Tool,
        *,
        cancelled: Callable[[], bool] = ...,
    ) -> Diagnosis: ...
