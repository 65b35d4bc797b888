"""The self-test of an engine: three candidates with known verdicts, judged on a tiny problem.

For a worker before it takes anything, and for a device that was taken out before it comes back.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from evaluator.candidates.candidate import Candidate
from evaluator.config import EvalConfig, Limits, SamplingPlan
from evaluator.errors import EvaluationCancelled, EvaluatorError
from evaluator.evaluation import Evaluation, Verdict
from evaluator.problems.problem import Problem
from evaluator.progress import Callbacks, never_cancelled

__all__ = ["Judging", "SelfTest", "self_test"]

_PROBLEM: Final = Problem(
    id="self-test",
    title="Self-test",
    description="A weighted sum, small enough to be judged in a moment.",
    source="""\
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width))

    def forward(self, x):
        return torch.relu(x) * self.weight


rows = 64
width = 512


def get_inputs():
    return [torch.rand(rows, width)]


def get_init_inputs():
    return [width]
""",
    sizes={"full": {}},
)
_CANDIDATE: Final = """\
import os
import signal

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width))

    def forward(self, x):
        {}
"""
_CASES: Final = (
    ("right", "return x.clamp(min=0) * self.weight", Verdict.PASSED),
    ("wrong", "return x.abs() * self.weight", Verdict.WRONG_OUTPUT),
    ("crashing", "os.kill(os.getpid(), signal.SIGSEGV) or os._exit(1)", Verdict.RUNTIME_ERROR),
)
"""Each candidate's source and required verdict. None has an extension: compilers are not tested here."""

# Nothing is timed: figures of an idle moment say little, and take long.
_PLAN: Final = SamplingPlan(trials=3, gradient_trials=1, max_samples=0, warm_samples=0)
_LIMITS: Final = Limits(load_s=60.0, construct_s=30.0, call_s=30.0, total_s=120.0)


class Judging(Protocol):
    """The part of an engine that the self-test uses."""

    def evaluate(
        self, problem: Problem, candidate: Candidate, config: EvalConfig, callbacks: Callbacks
    ) -> Evaluation: ...


@dataclass(frozen=True)
class SelfTest:
    """The result. ``failure`` names a wrong verdict; empty where everything was right."""

    failure: str
    seconds: float

    @property
    def passed(self) -> bool:
        return not self.failure


def self_test(engine: Judging, device: str, *, cancelled: Callable[[], bool] = never_cancelled) -> SelfTest:
    """Judge a right, a wrong and a crashing candidate on ``device``.

    Stops at the first verdict that is not as it must be. Raises ``EvaluationCancelled``.
    """
    begin = time.monotonic()
    config = EvalConfig(device=device, sampling=_PLAN, limits=_LIMITS)
    callbacks = Callbacks(cancelled=cancelled)
    failure = ""
    for name, body, expected in _CASES:
        source = _CANDIDATE.format(body)
        candidate = Candidate(source, hashlib.sha256(source.encode()).hexdigest(), "code")
        try:
            evaluation = engine.evaluate(_PROBLEM, candidate, config, callbacks)
        except EvaluationCancelled:
            raise
        except EvaluatorError as error:
            failure = f"the {name} candidate could not be judged: {error}"
        else:
            if evaluation.verdict is not expected:
                failure = f"the {name} candidate got {evaluation.verdict} instead of {expected}: {evaluation.message}"
        if failure:
            break
    return SelfTest(failure, time.monotonic() - begin)
