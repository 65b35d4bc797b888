"""One session of the judge with the runners of a group, from their tasks to the evaluations. Torch-free.

A group is mostly one candidate.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from evaluator.devices.machine_memory import out_of_memory_kills
from evaluator.errors import InfrastructureFault
from evaluator.evaluation import Evaluation, Gradients, Verdict
from evaluator.judge.client import JudgeProcess, RunnerAccess
from evaluator.processes.compile_cache import CompileCache
from evaluator.processes.runner_handle import RunnerHandle
from evaluator.processes.runner_pool import ReusableBaseline, RunnerPool, forks_beside
from evaluator.processes.team import MadeFor, close_runners, require_gone
from evaluator.processes.trusted_processes import TrustedProcesses
from evaluator.progress import Callbacks, Progress
from evaluator.results.assemble import conclude
from evaluator.task import EvaluationTask

__all__ = ["GroupEvaluation", "Provisional", "doubt_about"]

_EXIT_S: Final = 15.0
"""The wait for the report of an ended process, which comes once its group is empty and its files are gone."""

_log = logging.getLogger(__name__)

Provisional = tuple[Evaluation, str]
"""An evaluation, and the reason for a second one: empty where nothing is in doubt."""


@dataclass
class _Compiler:
    """A candidate's runner, which may compile in its first calls. ``restored``: it was given earlier files."""

    runner: RunnerHandle
    key: str
    restored: bool = False


@dataclass(frozen=True)
class _Lineup:
    """The runners of one session.

    ``baseline`` is the team's own, or a kept one (``is_kept``); then the team's own is ``spare_baseline``.
    ``spare``: candidates' runners that this session does not need. ``evaluations``: the number that the baseline has
    served with this session. ``made_for``: the limits and processes that all were made for.
    """

    compilers: tuple[_Compiler, ...]
    baseline: RunnerHandle
    is_kept: bool
    spare: tuple[RunnerHandle, ...]
    spare_baseline: RunnerHandle | None
    evaluations: int
    made_for: MadeFor

    @property
    def runners(self) -> list[RunnerHandle]:
        """The candidates' runners."""
        return [compiler.runner for compiler in self.compilers]


@dataclass(frozen=True)
class _Ending:
    """The end of a session: for each candidate the judge's outcome, as plain data, and its runner's wait status."""

    outcomes: list[dict[str, Any]]
    statuses: list[int | None]
    keeps_baseline: bool


class GroupEvaluation:
    """Evaluates candidates once, against one baseline. ``run`` is called once.

    All ``tasks`` have the same problem and the same settings. Each has its ``callbacks``, and the session is cancelled
    once all of them say so.
    """

    def __init__(
        self,
        processes: TrustedProcesses,
        pool: RunnerPool,
        compile_cache: CompileCache,
        tasks: Sequence[EvaluationTask],
        callbacks: Sequence[Callbacks],
    ) -> None:
        self._processes = processes
        self._pool = pool
        self._compile_cache = compile_cache
        self._tasks = tasks
        self._problem = tasks[0].problem
        self._config = tasks[0].config
        self._callbacks = callbacks
        self._held: list[RunnerHandle] = []
        """The runners to be ended with this session, however it ends."""

    def run(self) -> list[Provisional | None]:
        """Return each candidate's evaluation, and the doubt about it; ``None`` for one to be evaluated alone.

        Raises ``DoesNotFit``, ``GroupDoesNotFit``, ``DeviceUnavailable``, ``ProblemError``, ``ToolchainMissing``,
        ``EvaluationCancelled`` and ``InfrastructureFault``.
        """
        judge = self._processes.judge
        if judge is None:
            raise InfrastructureFault("the engine was closed")
        begin = time.monotonic()
        kills_before = out_of_memory_kills()
        try:
            lineup = self._gather()
            ending = self._hold_session(judge, lineup)
            for compiler, outcome in zip(lineup.compilers, ending.outcomes, strict=True):
                self._keep_compiled(compiler, outcome)
            _require_own_end(lineup.runners, ending.statuses, killed_by_kernel=out_of_memory_kills() != kills_before)
            if ending.keeps_baseline:
                self._held.remove(lineup.baseline)
                self._pool.keep(
                    ReusableBaseline(lineup.baseline, self._problem, self._config, lineup.made_for, lineup.evaluations)
                )
            return self._conclude(lineup.runners, ending, total_s=(time.monotonic() - begin) / len(self._tasks))
        finally:
            close_runners(self._held)

    def _cancelled(self) -> bool:
        return all(each.cancelled() for each in self._callbacks)

    def _gather(self) -> _Lineup:
        """Take runners for this session. Raises ``EvaluationCancelled`` and ``InfrastructureFault``."""
        problem, config, count = self._problem, self._config, len(self._tasks)
        kept = self._pool.take_kept(problem, config, count)
        if kept is not None:
            self._held.append(kept.runner)
        team, spare = self._pool.take_team(config, count, self._cancelled)
        self._held += [*team.runners, *spare]
        compilers = (
            _Compiler(runner, CompileCache.key(problem, config, task.candidate.source, self._processes.description))
            for runner, task in zip(team.candidates, self._tasks, strict=True)
        )
        # Where a baseline is kept, the team's own is left for the evaluation that needs it.
        return _Lineup(
            tuple(compilers),
            baseline=team.baseline if kept is None else kept.runner,
            is_kept=kept is not None,
            spare=tuple(spare),
            spare_baseline=None if kept is None else team.baseline,
            evaluations=count + (0 if kept is None else kept.evaluations),
            made_for=team.made_for,
        )

    def _hold_session(self, judge: JudgeProcess, lineup: _Lineup) -> _Ending:
        """Have the judge evaluate the candidates, and end all runners that are not kept."""
        config, pool, runners = self._config, self._pool, lineup.runners
        judge.begin(waiting=len(runners) + 1)
        keeps_baseline = False
        try:
            judge.begin_evaluation(
                self._problem,
                config,
                [_runner_access(runner) for runner in runners],
                None if lineup.is_kept else _runner_access(lineup.baseline),
                # Spare ones are there already.
                contexts=pool.contexts_ahead(config, len(runners), baseline=lineup.spare_baseline is None),
                spare=len(lineup.spare),
                keeps=pool.keeps_baseline(config, lineup.evaluations),
            )
            found = judge.await_result(
                len(runners) * (config.limits.total_s + config.limits.build_s),
                lambda index, stage, message, share: self._callbacks[index].progress(Progress(stage, message, share)),
                self._cancelled,
                lambda: self._assign(lineup),
                pool.allow_device_use,
                lambda: pool.quiesce(self._cancelled),
            )
            pool.allow_device_use()  # where nothing was timed, they have been told to wait until now
            outcomes: list[dict[str, Any]] = found["outcomes"]
            # Of several, one without a verdict may as well be stopped, and is evaluated alone in any case.
            ends = len(runners) == 1 and outcomes[0]["verdict"] is None
            statuses = [runner.forkserver.poll(runner.process, _EXIT_S if ends else 0) for runner in runners]
            keeps_baseline = found["keeps_baseline"]
        finally:
            # The judge frees the shared memory once no process maps it, however this ended.
            ended = runners if keeps_baseline else [*runners, lineup.baseline]
            for each in ended:
                each.begin_kill()  # a context takes a while to go
            for each in ended:
                each.kill()
            judge.clean_up(keeps_baseline=keeps_baseline)
            for each in ended:
                require_gone(each)  # the next evaluation must not be measured beside it, however this one ended
        return _Ending(outcomes, statuses, keeps_baseline)

    def _assign(self, lineup: _Lineup) -> None:
        """Give the runners their tasks, and begin those of the next evaluation."""
        config, count = self._config, len(lineup.compilers)
        for compiler, task in zip(lineup.compilers, self._tasks, strict=True):
            self._assign_compiled(compiler, task.candidate.source)
        if lineup.is_kept:
            lineup.baseline.keep_log_fields()
        else:
            lineup.baseline.assign(self._problem, config, None)
        if not forks_beside(config):
            self._pool.put_off(config, count)
            return
        for each in (*lineup.spare, lineup.spare_baseline):
            if each is not None:
                self._held.remove(each)
        # The processes of the next evaluation are forked while the candidates of this one are loaded and constructed.
        # They come to the device while these are verified.
        self._pool.begin_next(config, count, lineup.spare, lineup.spare_baseline)
        self._pool.await_next_forked()

    def _assign_compiled(self, compiler: _Compiler, source: str) -> None:
        """Give a runner its candidate, with the files that were compiled in an earlier evaluation, if there are any."""
        archive = self._compile_cache.open(compiler.key)
        compiler.restored = archive is not None
        try:
            compiler.runner.assign(self._problem, self._config, source, archive)
        finally:
            if archive is not None:
                os.close(archive)

    def _keep_compiled(self, compiler: _Compiler, outcome: dict[str, Any]) -> None:
        """Keep the compiled files of a candidate that passed, and forget restored ones that it did not pass with.

        Its ``outcome`` gets a note of that. One of several without a verdict may have been stopped because of another.
        """
        if outcome["verdict"] == Verdict.PASSED:
            archive, is_new = compiler.runner.process.archive, False
            try:
                is_new = bool(archive) and self._compile_cache.keep(compiler.key, Path(archive))
            except OSError as error:
                _log.warning("files that were compiled at run time cannot be kept: %s", error)
            if compiler.restored or is_new:
                outcome["details"]["compile_cache"] = "restored" if compiler.restored else "kept"
        elif compiler.restored and (len(self._tasks) == 1 or outcome["verdict"] is not None):
            self._compile_cache.forget(compiler.key)
            outcome["details"]["compile_cache"] = "restored"
            outcome["notes"].append(
                "it had the files that it compiled in an evaluation before, which passed; the next one compiles anew"
            )

    def _conclude(self, runners: Sequence[RunnerHandle], ending: _Ending, total_s: float) -> list[Provisional | None]:
        concluded: list[Provisional | None] = []
        each = zip(self._tasks, runners, ending.outcomes, ending.statuses, strict=True)
        for task, runner, outcome, status in each:
            if len(runners) > 1 and not _stands_among_others(outcome):
                concluded.append(None)
                continue
            runner.learn_builds()
            outcome["stage_s"]["total"] = total_s
            corrected = outcome.pop("corrected")
            doubt = doubt_about(
                corrected if task.config.sampling.settles else (),
                clocks_disagree=outcome.pop("clocks_disagree"),
                device_was_busy=outcome.pop("device_was_busy"),
            )
            environment = dict(self._processes.description)
            evaluation = conclude(task, runner, outcome, status=status, environment=environment)
            concluded.append((evaluation, doubt))
        return concluded


def doubt_about(corrected: Sequence[str], *, clocks_disagree: bool, device_was_busy: bool) -> str:
    """Return the reason for a second evaluation, in words. ``corrected``: the tracks with corrected time."""
    if device_was_busy:
        return "the device was busy while every process was stopped"
    if clocks_disagree:
        return "inner and outer clock disagreed"
    return f"time was put back: {' and '.join(corrected)}" if corrected else ""


def _stands_among_others(outcome: Mapping[str, Any]) -> bool:
    """Whether the outcome of one candidate among several is final: it passed, and every comparison was made."""
    return bool(outcome["verdict"] == Verdict.PASSED and outcome["gradients"] != Gradients.PARTIAL)


def _require_own_end(
    runners: Sequence[RunnerHandle], statuses: Sequence[int | None], *, killed_by_kernel: bool
) -> None:
    """Raise ``InfrastructureFault`` where a runner was killed for a reason other than its candidate."""
    for runner, status in zip(runners, statuses, strict=True):
        if status == signal.SIGKILL and runner.process.killed_for_others:
            raise InfrastructureFault("the machine ran out of memory, and the candidate was within its limit")
        if status == signal.SIGKILL and not (runner.process.out_of_memory or killed_by_kernel):
            # Not the kernel for want of memory, nor the candidate, because no process can kill process 1 from inside
            # its namespace. It was another process of this machine.
            raise InfrastructureFault("the candidate's process was killed from outside")


def _runner_access(runner: RunnerHandle) -> RunnerAccess:
    return RunnerAccess(runner.control.fileno(), {"pid": runner.process.pid, "group": runner.process.group})
