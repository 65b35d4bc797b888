"""The tasks of a submission's stages: it is built, or evaluated, and the result recorded.

One task may evaluate several submissions of the same kind together.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, NoReturn

from sqlalchemy.orm import Session

from evaluator import logs
from evaluator.candidates.candidate import Candidate
from evaluator.config import DEVICE_KINDS, EvalConfig, SamplingPlan, parse_limits
from evaluator.engine import Callbacks, Progress
from evaluator.errors import DeviceUnavailable, EvaluatorError, InfrastructureFault
from evaluator.evaluation import Evaluation, Verdict
from evaluator.problems.problem import Problem
from evaluator.problems.vetting import Vetting
from evaluator.problems.vetting.run import vet
from kerneljudge.terms.rules import parse_rules
from storage.grading.claims import Claim, Claims
from storage.models import Stage
from storage.queue.eligibility import DeviceCapabilities
from storage.queue.fair_order import AffinityStreak, GradingKey
from storage.vettings import record_vetting
from worker.claim_handler import ClaimedWork, ClaimHandler, Record
from worker.grading_engine import GradingEngine

__all__ = ["Grader"]

_RECENT: Final = 16
_MIN_RECENT: Final = 4
_PASSING: Final = 0.6
"""The least share of passes among recent evaluations for evaluating several together.

An evaluation that does not pass gains nothing from the others. With the durations of its stages on an H200, several
together are quicker while more than about half of them pass.
"""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CancellableJudge:
    """The part of an engine that vetting needs; its evaluations end once ``cancelled`` is true."""

    engine: GradingEngine
    cancelled: Callable[[], bool]

    @property
    def environment(self) -> Mapping[str, Any]:
        return self.engine.environment

    def evaluate(self, problem: Problem, candidate: Candidate, config: EvalConfig) -> Evaluation:
        """Evaluate as the engine does. Raises ``EvaluationCancelled`` besides."""
        return self.engine.evaluate(problem, candidate, config, Callbacks(cancelled=self.cancelled))


class Grader:
    """Takes submissions through one stage each, with a ``handler``'s engine.

    ``device_capabilities`` are those of the handler's device; ``None`` for a builder.
    """

    def __init__(self, handler: ClaimHandler, device_capabilities: DeviceCapabilities | None = None) -> None:
        self._handler = handler
        self._device_capabilities = device_capabilities
        self._run = AffinityStreak()
        self._passed: deque[bool] = deque(maxlen=_RECENT)

    def build(self) -> None:
        """Take the next submission through its build stage."""

        def work_on(claim: Claim) -> None:
            work = self._handler.begin("build", Claims, claim)
            work.finish(lambda: self._build(claim, work.callbacks))

        self._handler.take(
            # Any machine builds for any kind of device.
            lambda session: self._next(session, "build", DEVICE_KINDS),
            work_on,
        )

    def evaluate(self) -> None:
        """Take the next submission through its evaluation.

        Where the engine gains from it, others of the same kind are evaluated together with it.
        """
        device = self._handler.device
        assert device is not None

        def take(session: Session) -> list[Claim] | None:
            first = self._next(session, "evaluate", [device.partition(":")[0]], self._run.preferred)
            if first is None:
                return None
            more, lease_s = self._group_size(first, device) - 1, self._handler.settings.lease_s
            return [first, *Claims(session).claim_with_affinity(first, more, lease_s, self._device_capabilities)]

        def work_on(claims: list[Claim]) -> None:
            if len(claims) > 1:
                self._evaluate_group(claims, self._note_claims(claims, device))
                return
            (claim,) = claims
            work = self._handler.begin("evaluate", Claims, claim)
            work.finish(lambda: self._evaluate_alone(claim, device, work.callbacks))

        self._handler.take(take, work_on)

    def _next(
        self, session: Session, stage: Stage, devices: Collection[str], affinity: GradingKey | None = None
    ) -> Claim | None:
        _log.debug("%s: woken", stage)
        handler = self._handler
        return Claims(session).claim_next(
            stage, devices, handler.worker, handler.settings.lease_s, self._device_capabilities, affinity=affinity
        )

    def _group_size(self, claim: Claim, device: str) -> int:
        """Return the number of submissions like ``claim`` to evaluate together, itself included.

        It is one where too many of the latest candidates have not passed.
        """
        try:
            config = self._config(claim, device)
        except ValueError:  # recorded when the submission is worked on
            return 1
        if not claim.vetted:  # vetting is done once, with the first submission
            return 1
        if self._handler.settings.max_attempts == 1:  # a candidate that ends this worker would end others for good
            return 1
        passed = list(self._passed)
        if len(passed) >= _MIN_RECENT and sum(passed) < _PASSING * len(passed):
            return 1
        return min(self._handler.engine.max_group_size(claim.problem, config), self._run.remaining_for(claim.affinity))

    def _config(self, claim: Claim, device: str) -> EvalConfig:
        """Return the settings of the evaluation, which are the same for all submissions of one kind."""
        compared = self._handler.settings.compare_compiled and claim.tier == "full"
        config = replace(_config(claim, device), compare_compiled=compared)
        return self._limited(config, claim)

    def _limited(self, config: EvalConfig, claim: Claim) -> EvalConfig:
        ours = claim.problem.limits_here(parse_limits(self._handler.settings.limits))
        return replace(config, limits=ours.lowered(parse_limits(claim.limits)))

    def _note_claims(self, claims: Sequence[Claim], device: str) -> EvalConfig:
        """Note submissions of one kind in the affinity streak; return the settings of their evaluation."""
        config = self._config(claims[0], device)
        keeps_baseline = self._handler.engine.keeps_baseline(config)
        self._run.note_claim(claims[0].affinity if keeps_baseline else None, len(claims))
        return config

    def _build(self, claim: Claim, callbacks: Callbacks) -> Record:
        config = self._limited(_config(claim, claim.device), claim)
        report = self._handler.engine.build(claim.problem, claim.candidate, config, callbacks)
        evaluation = report.evaluation
        if evaluation is not None:
            _log.info("verdict: %s", evaluation.verdict)
            return lambda session: Claims(session).record_evaluation(claim, evaluation, failed_builds=report.failed)
        return lambda session: Claims(session).record_built(
            claim, seconds=report.seconds, log=report.log, builds=report.builds, failed_builds=report.failed
        )

    def _evaluate_alone(self, claim: Claim, device: str, callbacks: Callbacks) -> Record:
        """Evaluate a submission. A problem that was not vetted is vetted before any figure of it is shown."""
        config = self._note_claims([claim], device)
        evaluation = self._handler.engine.evaluate(claim.problem, claim.candidate, config, callbacks)
        record = self._evaluated(claim, evaluation)
        # A candidate that does not pass has no figures that a vetting could release.
        if claim.vetted or evaluation.verdict is not Verdict.PASSED:
            return record
        vetting = self._vet(claim, config, callbacks)

        def record_both(session: Session) -> bool:
            record_vetting(session, vetting)
            return record(session)

        return record_both

    def _evaluated(self, claim: Claim, result: Evaluation | EvaluatorError) -> Record:
        """Return the record of an evaluation. Raises ``result`` where it is an error."""
        if isinstance(result, EvaluatorError):
            raise result
        _log.info("verdict: %s", result.verdict)
        self._passed.append(result.verdict is Verdict.PASSED)
        settings = self._handler.settings
        return lambda session: Claims(session).record_evaluation(
            claim,
            result,
            diagnose=settings.diagnose == "auto",
            verify=settings.verify_records == "auto",
            # A quick answer is not worth a wait for a quiet machine.
            measure_again_s=settings.measure_again_s if claim.tier == "full" else (),
        )

    def _vet(self, claim: Claim, config: EvalConfig, callbacks: Callbacks) -> Vetting:
        _log.info("%s is vetted at %s", claim.problem.id, claim.precision)

        def report(check: str, number: int, most: int) -> None:
            callbacks.progress(Progress("vetting", f"the problem: {check}", number / most))

        judge = CancellableJudge(self._handler.engine, callbacks.cancelled)
        size = claim.problem.vetting_size
        return vet(claim.problem, judge, config.device, size, report, precision=claim.precision)

    def _evaluate_group(self, claims: Sequence[Claim], config: EvalConfig) -> None:
        """Evaluate submissions together. The engine does not wait while threads record what is known."""
        waiting: dict[int, ClaimedWork[Claim]] = {}
        recording: list[Future[None]] = []
        with (
            # The log lines of the engine's processes may be about any of them.
            logs.about(submission=" ".join(claim.submission_id for claim in claims)),
            ExitStack() as left,
            ThreadPoolExecutor(len(claims), "recording") as threads,
        ):
            try:
                for index, claim in enumerate(claims):
                    waiting[index] = self._handler.begin("evaluate", Claims, claim)
                with closing(self._group_records(claims, config, waiting)) as records:
                    for index, work in records:
                        recording.append(threads.submit(waiting[index].finish, work))
                        del waiting[index]
            finally:
                # In this thread, in case that no other can be started. Each is given back, even if another one fails.
                for index, claim in enumerate(claims):
                    give_back = partial(_give_back, claim)
                    if index in waiting:
                        left.callback(waiting[index].finish, give_back)
                    elif index >= len(waiting) + len(recording):  # it was not begun
                        left.callback(self._handler.persist, give_back())
        failures = [failure for failure in (each.exception() for each in recording) if failure is not None]
        for failure in failures[1:]:
            _log.error("not recorded", exc_info=failure)
        if failures:
            raise failures[0]

    def _group_records(
        self, claims: Sequence[Claim], config: EvalConfig, waiting: Mapping[int, ClaimedWork[Claim]]
    ) -> Generator[tuple[int, Callable[[], Record]]]:
        """Yield the work whose record ends each claim. The consumer removes it from those that are ``waiting``."""
        candidates = [claim.candidate for claim in claims]
        callbacks = [work.callbacks for work in waiting.values()]
        try:
            results = self._handler.engine.evaluate_group(claims[0].problem, candidates, config, callbacks)
            with closing(results):
                for index, result in results:
                    yield index, partial(self._evaluated, claims[index], result)
        except (InfrastructureFault, DeviceUnavailable) as error:
            # It is charged to one. A faulty candidate shows in time, because it is evaluated alone from now on.
            if waiting:
                yield min(waiting), partial(_raise, error)
            else:
                self._handler.machine_fault(claims[-1].submission_id, str(error))
        except Exception as error:  # noqa: BLE001 - a bug of ours, of which each that is left tells
            for index in list(waiting):
                yield index, partial(_raise, error)


def _raise(error: Exception) -> NoReturn:
    raise error


def _give_back(claim: Claim) -> Record:
    """Return the record of a submission whose turn did not come, which says nothing against it."""
    why = "what it was evaluated together with has ended before it"
    _log.info("given back: %s", why)
    return lambda session: Claims(session).release(claim, why)


def _config(claim: Claim, device: str) -> EvalConfig:
    return EvalConfig(
        device=device,
        size=claim.size,
        precision=claim.precision,
        baseline=claim.baseline,
        require_gradients=claim.require_gradients,
        sampling=SamplingPlan.usual(claim.device, claim.size, claim.tier),
        rules=parse_rules(claim.rules),
    )
