"""Diagnosing: after a device fault, behind every evaluation, and without any effect on a verdict."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from evaluator.candidates.candidate import Candidate
from evaluator.config import EvalConfig
from evaluator.engine import Engine
from evaluator.evaluation import Status
from evaluator.problems.problem import Problem
from kerneljudge.terms.findings import Diagnosis, Tool
from storage.grading.diagnoses import Diagnoses
from storage.models import DiagnosisStatus, StoredDiagnosis
from tests.sanitizers import make_fake_tool
from tests.worker.conftest import Installation
from tests.worker.engines import ScriptedEngine
from tests.worker.tasks import WorkerTasks
from worker.grading_engine import GradingEngine

Install = Callable[..., Installation]

OVERRUN = "# evaluate: overrun"


def grader(
    installation: Installation,
    *,
    engine: GradingEngine | None = None,
    device: str = "cuda:1",
    stopping: threading.Event | None = None,
) -> WorkerTasks:
    if engine is None:
        engine = ScriptedEngine(installation.settings.data_dir / "journal", [Tool.MEMCHECK])
        engine.start()
    return WorkerTasks(installation, engine, device=device, stopping=stopping)


def faulted(installation: Installation, worker: WorkerTasks, diagnose: str, size: str = "full") -> str:
    """A submission whose evaluation has ended with a device fault."""
    installation.serve("diagnose.compute-sanitizer")
    submission_id = installation.submit(f"{OVERRUN}\n# diagnose: {diagnose}", device="cuda", size=size)
    worker.build()
    worker.evaluate()
    assert installation.read(submission_id).status == Status.DONE
    return submission_id


def runs(installation: Installation) -> list[str]:
    """Where the engine has diagnosed: device and size."""
    lines = [line.split() for line in installation.journal]
    return [" ".join(line[1:3]) for line in lines if line[0] == "diagnose" and len(line) == 4]


def test_a_device_fault_is_diagnosed_without_being_asked_for(install: Install) -> None:
    installation = install()
    worker = grader(installation)
    submission_id = faulted(installation, worker, "overrun")
    before = installation.read(submission_id)
    worker.diagnose()
    done = installation.diagnosis(submission_id)
    assert (done.state, done.attempts) == (DiagnosisStatus.DONE, 1)
    assert done.result is not None
    assert done.result["faults"][0]["candidate_line"] == 3
    # Found at the small size, so the large one is not tried.
    assert runs(installation) == ["cuda:1 smoke"]
    after = installation.read(submission_id)
    assert before.evaluation is not None
    assert after.evaluation is not None
    assert (after.status, after.message, after.finished_at) == (before.status, before.message, before.finished_at)
    assert after.evaluation.record == before.evaluation.record
    assert worker.current_submission is None


def test_switched_off_nothing_is_diagnosed_that_nobody_asked_for(install: Install) -> None:
    installation = install(diagnose="off")
    worker = grader(installation)
    submission_id = faulted(installation, worker, "overrun")
    worker.diagnose()
    assert runs(installation) == []
    with installation.sessions.begin() as session:
        Diagnoses(session).request(submission_id, Tool.MEMCHECK)
    worker.diagnose()
    assert installation.diagnosis(submission_id).state is DiagnosisStatus.DONE


def test_a_fault_that_shows_at_the_full_size_alone_is_found_there(install: Install) -> None:
    installation = install()
    worker = grader(installation)
    submission_id = faulted(installation, worker, "overrun-when-full")
    worker.diagnose()
    assert runs(installation) == ["cuda:1 smoke", "cuda:1 full"]
    result = installation.diagnosis(submission_id).result
    assert result is not None
    assert (result["size"], len(result["faults"])) == ("full", 1)


def test_what_did_not_fault_is_looked_at_in_small(install: Install) -> None:
    installation = install()
    engine = ScriptedEngine(installation.settings.data_dir / "journal", [Tool.MEMCHECK, Tool.COUNTERS])
    engine.start()
    worker = grader(installation, engine=engine)
    installation.serve("diagnose.compute-sanitizer", "diagnose.ncu")
    submission_id = installation.submit(device="cuda", size="full")
    worker.build()
    worker.evaluate()
    for tool in (Tool.MEMCHECK, Tool.COUNTERS):
        with installation.sessions.begin() as session:
            Diagnoses(session).request(submission_id, tool)
        worker.diagnose()
    assert runs(installation) == ["cuda:1 smoke", "cuda:1 full"]


def test_a_doubled_message_changes_nothing(install: Install) -> None:
    installation = install()
    worker = grader(installation)
    faulted(installation, worker, "overrun")
    for _ in range(3):
        worker.diagnose()
    assert len(runs(installation)) == 1


def test_a_diagnosis_makes_room_for_an_evaluation(install: Install) -> None:
    installation = install()
    worker = grader(installation)
    diagnosed = faulted(installation, worker, "sleep 60", size="smoke")
    task = threading.Thread(target=worker.diagnose)
    task.start()
    installation.wait_for_diagnosis(diagnosed, DiagnosisStatus.RUNNING)
    waiting = installation.submit(device="cuda")
    worker.build()
    task.join(timeout=10)
    assert not task.is_alive()
    assert installation.journal[-1] == "diagnose stopped"
    given_back = installation.diagnosis(diagnosed)
    assert (given_back.state, given_back.faults, given_back.claim_token) == (DiagnosisStatus.PENDING, 0, None)
    # And it is not taken up again before the evaluation is.
    worker.diagnose()
    assert runs(installation) == ["cuda:1 smoke"]
    worker.evaluate()
    assert installation.read(waiting).status == Status.DONE


def test_a_worker_that_is_stopped_gives_a_diagnosis_back(install: Install) -> None:
    installation = install()
    stopping = threading.Event()
    worker = grader(installation, stopping=stopping)
    submission_id = faulted(installation, worker, "sleep 60")
    task = threading.Thread(target=worker.diagnose)
    task.start()
    installation.wait_for_diagnosis(submission_id, DiagnosisStatus.RUNNING)
    assert worker.current_submission == submission_id
    stopping.set()
    task.join(timeout=10)
    assert not task.is_alive()
    assert installation.diagnosis(submission_id).state is DiagnosisStatus.PENDING


@pytest.mark.parametrize(("what", "reason"), [("fault", "the judge died"), ("toolchain", "no compiler")])
def test_a_fault_of_ours_fails_the_diagnosis_and_not_the_submission(install: Install, what: str, reason: str) -> None:
    installation = install(max_attempts=1)
    worker = grader(installation)
    submission_id = faulted(installation, worker, what)
    worker.diagnose()
    failed = installation.diagnosis(submission_id)
    assert (failed.state, failed.message) == (DiagnosisStatus.FAILED, reason)
    assert installation.read(submission_id).status == Status.DONE
    # After a fault of the machine the engine's processes are new ones.
    assert installation.journal.count("start") == (2 if what == "fault" else 1)


_SOURCE = '''\
import torch
from torch.utils.cpp_extension import load_inline

cuda_source = """
__global__ void bad(float* x) {
  x[threadIdx.x] = 0;
}
"""


def build():
    return load_inline("x", cpp_sources="", cuda_sources=cuda_source, functions=["f"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
'''
_REPORT = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at bad(float *)+0x1a0 in /candidate/cuda.cu:6
=========     by thread (33,0,0) in block (0,0,0)
=========     Access at 0x7f31d5a3d300 is out of bounds
=========
========= ERROR SUMMARY: 1 error
"""


class FakedTool:
    """The real engine on the CPU, with a program in the place of the sanitizer."""

    def __init__(self, engine: Engine, program: str) -> None:
        self._engine = engine
        self._program = program
        for name in ("start", "close", "start_ahead", "build", "evaluate"):
            setattr(self, name, getattr(engine, name))

    @property
    def environment(self) -> Mapping[str, Any]:
        return self._engine.environment

    @property
    def tools(self) -> frozenset[Tool]:
        return frozenset([Tool.MEMCHECK])

    def diagnose(
        self, problem: Problem, candidate: Candidate, config: EvalConfig, tool: Tool, *, cancelled: Callable[[], bool]
    ) -> Diagnosis:
        return self._engine.diagnose(problem, candidate, config, tool, program=self._program, cancelled=cancelled)


def test_what_the_tool_says_in_the_sandbox_is_stored_with_the_candidates_line(install: Install, tmp_path: Path) -> None:
    installation = install()
    scripted = grader(installation)
    installation.serve("diagnose.compute-sanitizer")
    submission_id = installation.submit(f"{_SOURCE}{OVERRUN}\n", device="cuda", size="smoke")
    scripted.build()
    scripted.evaluate()
    program = make_fake_tool(tmp_path / "tool", _REPORT)
    with Engine(device="cpu", cache_dir=tmp_path / "cache", scratch_dir=tmp_path) as engine:
        faked: Any = FakedTool(engine, program)
        grader(installation, engine=faked, device="cpu").diagnose()
    with installation.readers() as session:
        row = session.get_one(StoredDiagnosis, (submission_id, "memcheck"))
        assert row.state is DiagnosisStatus.DONE, row.message
        assert row.result is not None
        assert "told: --tool memcheck" in row.printed
    assert (row.result["stage"], row.result["obstacle"]) == ("done", "")
    (fault,) = row.result["faults"]
    assert (fault["kernel"], fault["candidate_line"], fault["code"]) == ("bad", 6, "x[threadIdx.x] = 0;")
    assert (fault["thread"], fault["block"]) == ([33, 0, 0], [0, 0, 0])
