"""The runners of an engine that wait for the next evaluation or build, and how they are forked. Torch-free.

A new runner takes longer than many an evaluation. So those of the next one are forked ahead, and on CUDA the runner of
a baseline serves the next evaluation of the same problem as well.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from evaluator.config import PLAIN_BASELINES, EvalConfig, Limits
from evaluator.errors import InfrastructureFault
from evaluator.problems.problem import Problem
from evaluator.processes.runner_handle import RunnerHandle, begin_runner
from evaluator.processes.team import MadeFor, Team, close_runners
from evaluator.processes.trusted_processes import TrustedProcesses

__all__ = ["ReusableBaseline", "RunnerPool", "forks_beside"]

_KEEPS_BASELINES_ON: Final = frozenset({"cuda"})
"""Devices on which a baseline's process is reused. On a CPU, a process that has served for a while is faster than a new
one with the same model. The difference is 4 % (a small linear layer) to 10 % (a softmax), mean of 14 evaluations on two
cores.
"""
_FORKS_BESIDE: Final = frozenset({"cuda"})
"""Devices on which forking the processes of the next evaluation takes nothing from this one. Elsewhere it waits for
``start_ahead``: on two processors, constructing took a third less then.
"""
_MAX_EVALUATIONS: Final = 32
"""The most evaluations with the same process as their baseline, so that no fault of one process lasts."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReusableBaseline:
    """The runner of a baseline that has served so many ``evaluations``, and can serve the next one of the same kind."""

    runner: RunnerHandle
    problem: Problem
    config: EvalConfig
    made_for: MadeFor
    evaluations: int

    def serves(self, problem: Problem, config: EvalConfig, made_for: MadeFor, count: int) -> bool:
        """Whether it is alive, and suits an evaluation of so many candidates."""
        if (problem, config, made_for) != (self.problem, self.config, self.made_for):
            return False
        if self.evaluations + count > _MAX_EVALUATIONS:
            return False
        try:
            return self.runner.alive
        except InfrastructureFault:
            return False


class RunnerPool:
    """Forks runners from the fork server of ``processes``, and hands out those that wait.

    ``prepares_next``: runners of the next build and evaluation are forked ahead, and baselines are kept. One evaluation
    at a time uses it; a build may run beside.
    """

    def __init__(self, processes: TrustedProcesses, *, prepares_next: bool) -> None:
        self._processes = processes
        self._prepares_next = prepares_next
        self._waiting: Team | None = None
        self._next: tuple[EvalConfig, int] | None = None
        """The settings and the number of candidates of the latest evaluation, while runners for the next are put off.
        """
        self._kept: ReusableBaseline | None = None
        self._discoverer: tuple[RunnerHandle, Limits] | None = None
        """A runner that waits to find the extensions of the next module, and the limits that it was made for."""

    @property
    def process_ids(self) -> dict[str, int]:
        """The numbers of the waiting ones by role: ``candidate``, ``baseline``, ``kept baseline``, ``discoverer``."""
        runners: dict[str, RunnerHandle] = {}
        waiting, kept, discoverer = self._waiting, self._kept, self._discoverer
        if waiting is not None:
            first, *more = waiting.candidates
            runners |= {"candidate": first, "baseline": waiting.baseline}
            runners |= {f"candidate {number}": each for number, each in enumerate(more, start=2)}
        if kept is not None:
            runners["kept baseline"] = kept.runner
        if discoverer is not None:
            runners["discoverer"] = discoverer[0]
        pids = {role: runner.pid for role, runner in runners.items()}
        return {role: pid for role, pid in pids.items() if pid is not None}

    @property
    def others_wait(self) -> bool:
        """Whether runners wait for an evaluation of several candidates."""
        waiting = self._waiting
        return waiting is not None and len(waiting.candidates) > 1

    def close(self) -> None:
        """End all that wait. Idempotent."""
        self._next = None
        self.leave_device()
        self._end_discoverer()

    def leave_device(self) -> None:
        """End all that wait with a context on the device.

        A new judge opens the device. Those of the judge before are not to be on it then.
        """
        self.end_waiting()
        self.end_kept()

    def end_waiting(self) -> None:
        """End the runners that wait for the next evaluation."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.close()

    def end_kept(self) -> None:
        """End the runner of the kept baseline."""
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.runner.close()

    def _end_discoverer(self) -> None:
        discoverer, self._discoverer = self._discoverer, None
        if discoverer is not None:
            discoverer[0].close()

    def keeps_baseline(self, config: EvalConfig, evaluations: int = 0) -> bool:
        """Whether a baseline with these settings is kept, after it served so many ``evaluations``."""
        kept = self._prepares_next and config.device_kind in _KEEPS_BASELINES_ON and config.baseline in PLAIN_BASELINES
        return kept and evaluations < _MAX_EVALUATIONS

    def contexts_ahead(self, config: EvalConfig, count: int, *, baseline: bool) -> int:
        """The number of new contexts on the device during an evaluation of ``count`` candidates, for the next one.

        ``baseline``: whether a baseline's runner is among them.
        """
        return count + baseline if self._prepares_next and forks_beside(config) else 0

    def start_ahead(self) -> None:
        """Fork the runners of the next evaluation, where ``put_off`` has left that for later."""
        following, self._next = self._next, None
        if following is not None and self._waiting is None:
            self.begin_next(*following)

    def put_off(self, config: EvalConfig, count: int) -> None:
        """Note that the runners of the next evaluation are forked by ``start_ahead``."""
        self._next = config, count

    def take_kept(self, problem: Problem, config: EvalConfig, count: int) -> ReusableBaseline | None:
        """Return the kept baseline, if it fits an evaluation of so many candidates; otherwise end it."""
        kept = self._kept
        if kept is not None and not kept.serves(problem, config, self._made_for(config), count):
            self.end_kept()
        kept, self._kept = self._kept, None
        return kept

    def keep(self, baseline: ReusableBaseline) -> None:
        """Keep a baseline for the next evaluation."""
        self._kept = baseline

    def take_team(
        self, config: EvalConfig, count: int, cancelled: Callable[[], bool]
    ) -> tuple[Team, list[RunnerHandle]]:
        """Return runners that are ready for an evaluation of ``count`` candidates, and the remaining candidates'
        runners.

        They are the waiting ones, or new ones where those cannot be used. Raises ``EvaluationCancelled``, and
        ``InfrastructureFault`` where there are none to be had.
        """
        waiting = self._waiting
        if waiting is not None:
            ready = waiting.made_for == self._made_for(config) and waiting.is_ready(cancelled)
            self._waiting = None
            if not ready:
                waiting.close()
                waiting = None
        team: Team | None = None
        try:
            if waiting is None:
                team = self._begin_team(config, count)
            else:
                team = self._begin_team(config, count, waiting.candidates[:count], waiting.baseline)
            team.await_warm(cancelled)
        except BaseException:
            for each in (team, waiting):
                if each is not None:
                    each.close()
            raise
        return team, [] if waiting is None else waiting.candidates[count:]

    def begin_next(
        self,
        config: EvalConfig,
        count: int,
        spare: Sequence[RunnerHandle] = (),
        baseline: RunnerHandle | None = None,
    ) -> None:
        """Begin the runners of the next evaluation: ``count`` for candidates besides the ``spare`` ones, if possible.

        The present evaluation works without them. ``baseline``: one that exists already. New runners are still being
        forked, and ``allow_device_use`` lets them use the device.
        """
        there = [*spare, *([] if baseline is None else [baseline])]
        if not self._prepares_next:
            close_runners(there)
            return
        try:
            self._waiting = self._begin_team(config, len(spare) + count, spare, baseline)
        except (InfrastructureFault, OSError, RuntimeError) as error:
            _log.warning("the processes of the next evaluation cannot be started ahead: %s", error)
            close_runners(there)

    def await_next_forked(self) -> None:
        """Wait until the processes of the next evaluation are there, if some were begun."""
        if self._waiting is not None:
            self._try_next(self._waiting.await_forked)

    def allow_device_use(self) -> None:
        """Let the runners of the next evaluation use the device."""
        if self._waiting is not None:
            self._try_next(self._waiting.begin_warm_up)

    def quiesce(self, cancelled: Callable[[], bool]) -> bool:
        """Wait until the runners of the next evaluation are idle or gone; return whether they are there.

        Raises ``EvaluationCancelled``.
        """
        waiting = self._waiting
        if waiting is not None:
            self._try_next(lambda: waiting.await_warm(cancelled))
        return self._waiting is not None

    def _try_next(self, step: Callable[[], None]) -> None:
        """Run a step of the next evaluation's runners. A failure ends them alone: this one works without them."""
        try:
            step()
        except (InfrastructureFault, OSError, RuntimeError) as error:
            _log.warning("the processes of the next evaluation are started again: %s", error)
            self.end_waiting()

    def take_discoverer(self, config: EvalConfig) -> RunnerHandle:
        """Return a runner without a device, to import a module in: the one that waits, or a new one."""
        with self._processes.starting:
            waiting, self._discoverer = self._discoverer, None
        if waiting is not None:
            runner, limits = waiting
            ours = (
                limits == config.limits
                and runner.forkserver is self._processes.forkserver
                and runner.builder is self._processes.builder
            )
            with contextlib.suppress(InfrastructureFault):
                runner.await_forked()
                if ours and runner.alive:
                    return runner
            runner.close()
        return self._begin_runner(config, discover=True)

    def prepare_discoverer(self, config: EvalConfig) -> None:
        """Fork the runner of the next build now, because that takes longer than the rest of a build from the cache.

        Builds work without it.
        """
        with self._processes.starting:
            if not self._prepares_next or self._discoverer is not None:
                return
            try:
                runner = self._begin_runner(config, discover=True)
                self._discoverer = runner, config.limits
                runner.begin_warm_up()
            except (InfrastructureFault, OSError, RuntimeError) as error:
                _log.warning("the process of the next build cannot be started ahead: %s", error)
                self._end_discoverer()

    def _made_for(self, config: EvalConfig) -> MadeFor:
        return config.limits, self._processes.judge, self._processes.forkserver, self._processes.builder

    def _begin_team(
        self,
        config: EvalConfig,
        count: int,
        candidates: Sequence[RunnerHandle] = (),
        baseline: RunnerHandle | None = None,
    ) -> Team:
        """Begin ``count`` runners for candidates and one for their baseline, counting those that exist already.

        New runners are still being forked.
        """
        started: list[RunnerHandle] = []
        try:
            started.extend(self._begin_runner(config) for _ in range(count - len(candidates)))
            new = list(started)
            if baseline is None:
                baseline = self._begin_runner(config, watched=False)
                started.append(baseline)
        except BaseException:
            close_runners(started)
            raise
        return Team([*candidates, *new], baseline, self._made_for(config))

    def _begin_runner(self, config: EvalConfig, *, discover: bool = False, watched: bool = True) -> RunnerHandle:
        """Return a runner that is being forked, and then waits for its task.

        ``discover``: without a device. ``watched``: it is for a candidate.
        """
        # The present ones: a build that runs beside may replace them meanwhile.
        builder, forkserver = self._processes.builder, self._processes.forkserver
        environment = self._processes.process_environment
        if builder is None or forkserver is None or environment is None:
            raise InfrastructureFault("the engine was closed")
        spec = {
            "confinement": environment.runner_confinement(config.limits, with_device=not discover).to_json(),
            "scratch": str(environment.scratch_dir),
            "discover": discover,
            "watched": watched,
            "cuda": config.device_kind == "cuda" and not discover,
            "environment": environment.runner_environment(with_device=not discover),
            "keeps_compiled": watched and not discover,
        }
        return begin_runner(forkserver, builder, spec, config.limits)


def forks_beside(config: EvalConfig) -> bool:
    """Whether the runners of the next evaluation are forked during this one."""
    return config.device_kind in _FORKS_BESIDE
