"""What an evaluation ends with, from what is said of it."""

from __future__ import annotations

import signal
from types import SimpleNamespace
from typing import Any

import pytest

from evaluator.candidates.candidate import Candidate
from evaluator.config import EvalConfig
from evaluator.evaluation import Evaluation, Verdict
from evaluator.problems.problem import Problem
from evaluator.results.assemble import conclude
from evaluator.task import EvaluationTask

_ILLEGAL = "RuntimeError: CUDA error: an illegal memory access was encountered"
_TERMINATED = "terminate called after throwing an instance of 'c10::AcceleratorError'\n  what():  " + _ILLEGAL


_BUILD: dict[str, Any] = {
    "name": "relu",
    "recipe": "plain",
    "seconds": 1.0,
    "cached": False,
    "refusals": {},
    "kernels": ["relu"],
}


@pytest.fixture
def concluded(problems: dict[str, Problem]) -> Any:
    """Concludes from a runner's end."""

    def concluded(
        verdict: Verdict | None,
        message: str = "",
        *,
        device: str = "cuda:1",
        log: str = "",
        status: int | None = None,
        builds: tuple[dict[str, Any], ...] = (_BUILD,),
    ) -> Evaluation:
        runner: Any = SimpleNamespace(
            builds=builds, log=lambda _most: log, process=SimpleNamespace(refused=(), out_of_memory=False)
        )
        outcome = {"verdict": verdict, "message": message, "stage": "trials", "notes": [], "details": {"trials": 2}}
        return conclude(
            EvaluationTask(
                problems["relu"],
                Candidate("class ModelNew: ...\n", "0" * 64, "code"),
                EvalConfig(device=device, size="smoke"),
            ),
            runner,
            {**outcome, "stage_s": {}},
            status=status,
            environment={},
        )

    return concluded


@pytest.mark.parametrize("verdict", [Verdict.RUNTIME_ERROR, Verdict.CONSTRUCT_ERROR, Verdict.LOAD_ERROR])
def test_a_device_fault_is_named_in_the_details(concluded: Any, verdict: Verdict) -> None:
    evaluation = concluded(verdict, _ILLEGAL)
    assert evaluation.verdict is verdict
    assert evaluation.message == f"CUDA error in kernel relu: illegal memory access\n{_ILLEGAL}"
    assert evaluation.details == {
        "trials": 2,
        "device_fault": "illegal memory access",
        "builds": [{"name": "relu", "recipe": "plain", "seconds": 1.0, "cached": False}],
    }


def test_a_device_fault_that_ended_the_process_is_found_in_its_log(concluded: Any) -> None:
    crashed = concluded(None, log=_TERMINATED, status=int(signal.SIGABRT))
    assert crashed.verdict is Verdict.RUNTIME_ERROR
    assert crashed.message == "the candidate's process crashed with SIGABRT while trials"
    assert crashed.details["device_fault"] == "illegal memory access"


@pytest.mark.parametrize(
    "ended",
    [
        {"verdict": Verdict.RUNTIME_ERROR, "message": "ValueError: no"},
        # Printed, and something else was raised.
        {"verdict": Verdict.RUNTIME_ERROR, "message": "ValueError: no", "log": _TERMINATED},
        {"verdict": Verdict.RUNTIME_ERROR, "message": _ILLEGAL, "device": "cpu"},
        {"verdict": Verdict.RUNTIME_ERROR, "message": _ILLEGAL, "builds": ({"name": "x", "error": "line 3: no"},)},
        {"verdict": Verdict.WRONG_OUTPUT, "message": _ILLEGAL},
        {"verdict": None, "log": _TERMINATED, "status": int(signal.SIGKILL)},
        {"verdict": None, "status": int(signal.SIGSEGV)},
    ],
    ids=["other", "printed", "cpu", "not built", "wrong", "out of memory", "crash of the host"],
)
def test_what_is_no_device_fault_is_not_named_as_one(concluded: Any, ended: dict[str, Any]) -> None:
    assert "device_fault" not in concluded(**ended).details
