"""The evaluation stage: candidates are evaluated in groups or alone, and again where there is doubt. Torch-free."""

from __future__ import annotations

import logging
from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any, Final

from evaluator.candidates.candidate import Candidate
from evaluator.config import EvalConfig
from evaluator.errors import (
    DeviceUnavailable,
    DoesNotFit,
    EvaluationCancelled,
    EvaluatorError,
    GroupDoesNotFit,
    InfrastructureFault,
    ProblemError,
)
from evaluator.evaluation import Evaluation, Verdict
from evaluator.problems.problem import Problem
from evaluator.processes.compile_cache import CompileCache
from evaluator.processes.runner_pool import RunnerPool
from evaluator.processes.trusted_processes import TrustedProcesses
from evaluator.progress import Callbacks, Progress
from evaluator.results.compiled_baselines import CompiledBaselines
from evaluator.stages.group_evaluation import GroupEvaluation, Provisional
from evaluator.stages.shapes import at_shapes
from evaluator.stages.source_check import rejected_by_rules
from evaluator.task import EvaluationTask

__all__ = ["EvaluationStage", "GroupResults"]

_MAX_TOGETHER: Final = 4
"""The most candidates that are evaluated together. With twice as many, on an H200, candidates of two problems took 5
and 17 % less. Those of three problems took 7 to 11 % more.
"""

_log = logging.getLogger(__name__)

GroupResults = Generator[tuple[int, Evaluation | EvaluatorError], None, None]
"""The results of candidates by their index, each as soon as it is known."""


class EvaluationStage:
    """Evaluates candidates with the processes of an engine. One caller at a time."""

    def __init__(
        self,
        processes: TrustedProcesses,
        pool: RunnerPool,
        compile_cache: CompileCache,
        compiled_baselines: CompiledBaselines,
    ) -> None:
        self._processes = processes
        self._pool = pool
        self._compile_cache = compile_cache
        self._compiled_baselines = compiled_baselines
        self._too_large: set[tuple[str, str, EvalConfig]] = set()
        """Groups of candidates that do not fit together: problem, version, settings."""

    def max_group_size(self, problem: Problem, config: EvalConfig) -> int:
        """As ``Engine.max_group_size``."""
        gains = self._pool.keeps_baseline(config) and config.sampling.max_samples > 0 and not config.compare_compiled
        return _MAX_TOGETHER if gains and _group_key(problem, config) not in self._too_large else 1

    def evaluate_group(self, tasks: Sequence[EvaluationTask], callbacks: Sequence[Callbacks]) -> GroupResults:
        """As ``Engine.evaluate_group``. There is at least one task; all have the same problem and settings."""
        problem, config = tasks[0].problem, tasks[0].config
        refusal = problem.refuses_baseline(config) or problem.refuses_rules(config.rules)
        left = dict(enumerate(tasks))
        for index, task in enumerate(tasks if refusal is None else ()):
            rejected = self._rejected(task)
            if rejected is not None:
                del left[index]
                yield index, rejected
        firsts: dict[int, Provisional] = {}
        if refusal is None and 1 < len(left) <= self.max_group_size(problem, config):
            found = self._evaluate_group(list(left.values()), [callbacks[index] for index in left])
            firsts = {index: found[place] for place, index in enumerate(left) if place in found}
        for index, (evaluation, doubt) in firsts.items():
            if not doubt and not problem.shapes_of(config.size):
                del left[index]
                yield index, EvaluationCancelled() if callbacks[index].cancelled() else evaluation
        for index, task in left.items():
            result: Evaluation | EvaluatorError
            try:
                if refusal is not None:
                    raise ProblemError(refusal)
                if callbacks[index].cancelled():
                    raise EvaluationCancelled
                result = self._evaluate_and_compare(task, callbacks[index], firsts.get(index))
            except (InfrastructureFault, DeviceUnavailable):
                raise
            except EvaluatorError as error:
                result = error
            yield index, result

    def evaluate(self, task: EvaluationTask, callbacks: Callbacks) -> Evaluation:
        """As ``Engine.evaluate``."""
        return self._rejected(task) or self._evaluate_and_compare(task, callbacks)

    def _rejected(self, task: EvaluationTask) -> Evaluation | None:
        return rejected_by_rules(task, stage="total", environment=dict(self._processes.description))

    def _evaluate_and_compare(
        self, task: EvaluationTask, callbacks: Callbacks, known: Provisional | None = None
    ) -> Evaluation:
        """Evaluate it at the size and then at its shapes.

        One that passes is compared with the compiled reference where the settings say so.
        """
        evaluation = at_shapes(self._evaluate_surely(task, callbacks, known), task, callbacks, self._evaluate_surely)
        if not task.config.compare_compiled or task.config.baseline != "eager":
            return evaluation

        def measure(reference: Candidate, its_config: EvalConfig) -> Evaluation:
            def report(step: Progress) -> None:
                callbacks.progress(Progress("comparing", f"torch.compile, {step.stage}: {step.message}", step.share))

            compiled = EvaluationTask(task.problem, reference, its_config)
            return self._evaluate_surely(compiled, Callbacks(report, callbacks.cancelled))

        return self._compiled_baselines.compare(evaluation, task.problem, task.config, measure)

    def _evaluate_group(
        self, tasks: Sequence[EvaluationTask], callbacks: Sequence[Callbacks]
    ) -> dict[int, Provisional]:
        """Return the evaluations of the candidates that passed among the others, by index.

        Raises ``InfrastructureFault`` and ``DeviceUnavailable``.
        """
        try:
            found = self._evaluate(tasks, callbacks)
        except (InfrastructureFault, DeviceUnavailable):
            raise
        except EvaluatorError as error:
            # The evaluation of each alone shows which one has the fault.
            _log.info("candidates are evaluated one by one, since together they could not be: %s", error)
            if isinstance(error, GroupDoesNotFit):
                self._too_large.add(_group_key(tasks[0].problem, tasks[0].config))
            return {}
        return {index: first for index, first in enumerate(found) if first is not None}

    def _evaluate_surely(
        self, task: EvaluationTask, callbacks: Callbacks, known: Provisional | None = None
    ) -> Evaluation:
        """Evaluate it, unless a first evaluation is ``known``, and evaluate it again where that one is in doubt.

        The second evaluation has new processes on both sides. Two reasons call for it. Time seemed to be left out, so
        that the figures were corrected or the candidate was rejected. Or there was activity on the device, possibly of
        a foreign process. Either happens by chance now and then, and seldom twice; a candidate that does leave time out
        does so again.
        """
        first, doubt = known or self._evaluate_alone(task, callbacks)
        if not doubt:
            return first
        self._pool.end_kept()
        try:
            again, _ = self._evaluate_alone(task, callbacks)
        except (DoesNotFit, InfrastructureFault, ProblemError) as error:
            _log.warning("a second evaluation could not be made: %s", error)
            note = f"a second evaluation, since {doubt}, could not be made: {error}"
            return replace(first, notes=(*first.notes, note))
        total_s = first.stage_s["total"] + again.stage_s["total"]
        note = f"evaluated twice, since in a first evaluation {doubt}"
        return replace(
            again,
            notes=(*again.notes, note),
            stage_s={**again.stage_s, "total": total_s},
            details={**again.details, "first_evaluation": _in_short(first)},
        )

    def _evaluate_alone(self, task: EvaluationTask, callbacks: Callbacks) -> Provisional:
        others_wait = self._pool.others_wait
        found: Provisional | None = None
        try:
            (found,) = self._evaluate([task], [callbacks])
        except DoesNotFit:
            if not others_wait:
                raise
        if found is None or (others_wait and found[0].verdict is Verdict.OUT_OF_MEMORY):
            # There is more room without the processes that wait for a larger session.
            self._pool.end_waiting()
            (found,) = self._evaluate([task], [callbacks])
        assert found is not None
        return found

    def _evaluate(self, tasks: Sequence[EvaluationTask], callbacks: Sequence[Callbacks]) -> list[Provisional | None]:
        """As ``GroupEvaluation.run``."""
        self._processes.ensure_alive(before_judge=self._pool.leave_device)
        return GroupEvaluation(self._processes, self._pool, self._compile_cache, tasks, callbacks).run()


def _group_key(problem: Problem, config: EvalConfig) -> tuple[str, str, EvalConfig]:
    return problem.id, problem.version, config


def _in_short(evaluation: Evaluation) -> dict[str, Any]:
    """The part of an evaluation that the record of its successor keeps."""
    return {
        "verdict": str(evaluation.verdict),
        "message": evaluation.message,
        "gradients": str(evaluation.gradients),
        "speedup": evaluation.speedup,
        "speedup_training": evaluation.speedup_training,
        "notes": list(evaluation.notes),
    }
