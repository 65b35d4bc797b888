"""Several submissions that an engine evaluates together, with a thread for each of them.

For such a thread it is an evaluation like any other. While it records the result, neither the engine nor the other
threads wait.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import Protocol, Self

from evaluator.candidates.candidate import Candidate
from evaluator.config import EvalConfig
from evaluator.engine import Callbacks, Progress
from evaluator.errors import DeviceUnavailable, EvaluatorError, InfrastructureFault
from evaluator.evaluation import Evaluation
from evaluator.problems.problem import Problem

__all__ = ["GroupEngine", "GroupRun", "NotStarted"]


class GroupEngine(Protocol):
    """The part of ``evaluator.engine.Engine`` that ``GroupRun`` needs."""

    def evaluate_group(
        self,
        problem: Problem,
        candidates: Sequence[Candidate],
        config: EvalConfig,
        callbacks: Sequence[Callbacks],
        done: Callable[[int, Evaluation | EvaluatorError], None],
    ) -> None: ...


class NotStarted(Exception):
    """The engine has ended before it came to this candidate, which says nothing against the candidate."""


class GroupRun:
    """One evaluation of several candidates. A context manager: at its end there is an outcome for each of them."""

    def __init__(
        self, engine: GroupEngine, problem: Problem, candidates: Sequence[Candidate], config: EvalConfig
    ) -> None:
        self._engine = engine
        self._problem = problem
        self._candidates = candidates
        self._config = config
        self._outcomes: list[Future[Evaluation]] = [Future() for _ in candidates]
        self._lock = threading.Lock()
        self._progress: dict[int, Callable[[Progress], None]] = {}
        self._unseen: dict[int, Progress] = {}
        self._cancelled: dict[int, Callable[[], bool]] = {}
        self._faults: dict[int, EvaluatorError] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(NotStarted("what it was evaluated together with has ended before it"))

    def evaluate(self, index: int, callbacks: Callbacks) -> Evaluation:
        """Wait for the result of one candidate. Raises the errors of ``Engine.evaluate``, and ``NotStarted``."""
        self._cancelled[index] = callbacks.cancelled
        with self._lock:
            self._progress[index] = callbacks.progress
            if index in self._unseen:
                callbacks.progress(self._unseen[index])
        return self._outcomes[index].result()

    def leave(self, index: int) -> None:
        """Cancel the evaluation of this candidate, because its thread does not wait for the result any more."""
        self._cancelled[index] = lambda: True

    def run(self) -> None:
        """Have the engine evaluate the candidates."""
        try:
            self._engine.evaluate_group(
                self._problem,
                self._candidates,
                self._config,
                [
                    Callbacks(partial(self._show, index), partial(self._is_cancelled, index))
                    for index in range(len(self._candidates))
                ],
                self._done,
            )
        except Exception as error:  # noqa: BLE001 - a bug of ours, which each of those that are left tells of
            self._end(error)

    def _show(self, index: int, progress: Progress) -> None:
        with self._lock:
            if index in self._progress:
                self._progress[index](progress)
            else:  # its thread is about to call ``evaluate``
                self._unseen[index] = progress

    def _is_cancelled(self, index: int) -> bool:
        return index in self._cancelled and self._cancelled[index]()

    def _done(self, index: int, outcome: Evaluation | EvaluatorError) -> None:
        if isinstance(outcome, Evaluation):
            self._outcomes[index].set_result(outcome)
        elif isinstance(outcome, InfrastructureFault | DeviceUnavailable):
            # Kept until the end: the thread that gets it renews the engine, which must have finished with this first.
            self._faults[index] = outcome
        else:
            self._outcomes[index].set_exception(outcome)

    def _end(self, error: Exception) -> None:
        """Give each candidate without an outcome its fault, or else ``error``."""
        for index, outcome in enumerate(self._outcomes):
            if not outcome.done():
                outcome.set_exception(self._faults.get(index, error))
