"""``kerneljudge serve`` as a user runs it: real API, real workers, real evaluations on the CPU."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.machines import without_libseccomp
from tests.processes import Process, children, descendants, wait_until, wait_until_gone
from tests.services import free_port

_ROOT = Path(__file__).parent.parent.parent
_PROGRAM = "import sys; from kerneljudge_server.serve import serve; sys.exit(serve())"
# Wrong at once and by much: its verdict is the same on however busy a machine.
_CANDIDATE = """
import time

import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        time.sleep({seconds})

    def forward(self, x):
        return torch.clamp(x, min=0) + 1
"""


@dataclass
class Service:
    """One ``serve`` process and what a user does with it."""

    data: Path
    port: int = field(default_factory=free_port)

    def start(self) -> None:
        environment = {
            **os.environ,
            "KERNELJUDGE_DATA_DIR": str(self.data),
            "KERNELJUDGE_PORT": str(self.port),
            "KERNELJUDGE_DEVICES": "cpu",
            "KERNELJUDGE_LEASE_S": "2",
            "KERNELJUDGE_RECONCILE_S": "0.5",
        }
        said = self.data.with_suffix(".said")
        with said.open("w") as output:
            self.process = subprocess.Popen([sys.executable, "-c", _PROGRAM], cwd=_ROOT, env=environment, stderr=output)
        wait_until(lambda: "is ready at" in said.read_text(), "the service to be ready")

    @property
    def processes(self) -> list[Process]:
        return descendants(self.process.pid)

    def child(self, command: str) -> Process:
        return next(each for each in self.processes if f"runtime.parent_death {command}" in each.command)

    def request(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        """Ask the API; while it is being started again, keep asking."""
        answers: list[httpx.Response] = []

        def answered() -> bool:
            try:
                url = f"http://127.0.0.1:{self.port}{path}"
                answers.append(httpx.request(method, url, timeout=10, trust_env=False, **options))
            except httpx.TransportError:
                return False
            return True

        wait_until(answered, f"an answer to {method} {path}")
        body: dict[str, Any] = answers[0].raise_for_status().json()
        return body

    def submit(self, seconds: float = 0.0) -> str:
        code = _CANDIDATE.format(seconds=seconds)
        body = {"problem": "relu", "code": code, "device": "cpu", "size": "smoke"}
        return str(self.request("POST", "/api/v1/submissions", json=body)["id"])

    def wait(self, submission_id: str, status: str = "done") -> dict[str, Any]:
        seen: list[dict[str, Any]] = []

        def reached() -> bool:
            seen.append(self.request("GET", f"/api/v1/submissions/{submission_id}"))
            return bool(seen[-1]["status"] == status)

        wait_until(reached, f"{submission_id} to be {status}", timeout_s=90)
        return seen[-1]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """A running service; whatever a test did to it, nothing of it is left."""
    service = Service(tmp_path / "data")
    service.start()
    yield service
    left = service.processes
    service.process.kill()
    service.process.wait()
    wait_until_gone(left)


def test_it_survives_the_death_of_each_of_its_processes_and_stops_cleanly(service: Service) -> None:
    for command in ("worker --queue evaluate.cpu", "worker --queue build", "api"):
        submission_id = service.submit(seconds=2)
        service.wait(submission_id, "evaluating")
        victim = service.child(command)
        os.kill(victim.pid, signal.SIGKILL)
        wait_until_gone([victim])
        next_id = service.submit()
        done = service.wait(submission_id)
        assert done["verdict"] == "wrong_output"
        assert done["attempts"] == (2 if "evaluate" in command else 1)
        assert service.wait(next_id)["verdict"] == "wrong_output"
    everything = service.processes
    service.process.send_signal(signal.SIGINT)
    assert service.process.wait(timeout=30) == 0
    wait_until_gone(everything, timeout_s=5)


@pytest.mark.parametrize("victim", ["judge", "forkserver", "builder", "runner"])
def test_an_evaluation_whose_engine_loses_a_process_is_made_again(service: Service, victim: str) -> None:
    submission_id = service.submit(seconds=2)
    service.wait(submission_id, "evaluating")
    worker = service.child("worker --queue evaluate.cpu")
    wait_until(lambda: len(_engine_processes(worker)["runner"]) == 2, "both runners")
    # Of the runners the candidate's, which was forked first.
    process = min(_engine_processes(worker)[victim], key=lambda each: each.pid)
    os.kill(process.pid, signal.SIGKILL)
    done = service.wait(submission_id)
    assert done["verdict"] == "wrong_output"
    assert done["attempts"] == 2
    assert service.wait(service.submit())["verdict"] == "wrong_output"


def _engine_processes(worker: Process) -> dict[str, list[Process]]:
    """What the engine of a worker has started, by role; a runner is what a reaper of the fork server forked."""
    direct = children(worker.pid)
    roles = {
        role: [each for each in direct if f"evaluator.{module}" in each.command]
        for role, module in {"judge": "judge", "forkserver": "sandbox.forkserver", "builder": "build"}.items()
    }
    reapers = [reaper for forkserver in roles["forkserver"] for reaper in children(forkserver.pid)]
    return {**roles, "runner": [runner for reaper in reapers for runner in children(reaper.pid)]}


def test_it_goes_on_with_what_was_not_finished_when_it_was_killed(service: Service) -> None:
    submission_id = service.submit(seconds=2)
    service.wait(submission_id, "evaluating")
    left = service.processes
    service.process.kill()
    service.process.wait()
    scratch = service.data / "scratch"
    killed = set(scratch.glob("kerneljudge-*"))
    (scratch / "mine").mkdir()
    service.start()
    wait_until_gone(left, timeout_s=1)
    assert service.wait(submission_id)["verdict"] == "wrong_output"
    assert killed
    assert not killed & set(scratch.glob("kerneljudge-*"))
    assert (scratch / "mine").exists()


def test_a_second_one_on_the_same_folder_is_refused(service: Service) -> None:
    status, said = refused(DATA_DIR=str(service.data), PORT=str(free_port()))
    assert status == 2
    assert f"another kerneljudge serve uses {service.data}" in said


def test_a_port_in_use_is_said_to_be(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, said = refused(DATA_DIR=str(tmp_path), PORT=str(port))
    assert status == 2
    assert f"cannot listen on 127.0.0.1 port {port}" in said


def test_a_device_that_is_not_there_is_refused_with_those_that_are(tmp_path: Path) -> None:
    status, said = refused(DATA_DIR=str(tmp_path), PORT=str(free_port()), DEVICES="cpu,cuda:99")
    assert status == 2
    assert "no device cuda:99 on this machine; it has cpu" in said


@pytest.mark.parametrize("name", ["PORT", "LEASE_S"])
def test_a_variable_that_cannot_be_used_is_named_in_one_line(tmp_path: Path, name: str) -> None:
    status, said = refused(**{"DATA_DIR": str(tmp_path), name: "abc"})
    assert status == 2
    assert said.startswith(f"kerneljudge serve: KERNELJUDGE_{name}=abc: ")
    assert len(said.splitlines()) == 1


def test_a_database_that_cannot_be_used_is_our_fault_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "kerneljudge.db").write_text("this is no database, but it is long enough to be read as one" * 20)
    status, said = refused(DATA_DIR=str(tmp_path), PORT=str(free_port()))
    assert status == 3
    assert "file is not a database" in said


def test_an_api_that_does_not_start_is_our_fault_with_its_last_words(tmp_path: Path) -> None:
    status, said = refused(DATA_DIR=str(tmp_path), PORT=str(free_port()), PROBLEMS_DIR=str(tmp_path / "none"))
    assert status == 3
    assert "no folder of problems" in said


def test_an_incomplete_sandbox_is_refused_before_anything_is_started_where_it_is_required(tmp_path: Path) -> None:
    data = tmp_path / "data"
    machine = without_libseccomp(tmp_path / "site")
    status, said = refused(machine, DATA_DIR=str(data), PORT=str(free_port()), DEVICES="cpu", REQUIRE_SANDBOX="true")
    assert status == 3
    assert said.startswith("kerneljudge serve: a complete sandbox is required, and the kernel refuses: syscalls (")
    assert len(said.splitlines()) == 1
    assert not (data / "logs").exists()


def refused(machine: Mapping[str, str] = os.environ, **settings: str) -> tuple[int, str]:
    """The exit status of ``serve`` and what it said, where it does not start."""
    environment = {f"KERNELJUDGE_{name}": value for name, value in settings.items()}
    argv = [sys.executable, "-c", _PROGRAM]
    result = subprocess.run(
        argv, cwd=_ROOT, env={**machine, **environment}, stderr=subprocess.PIPE, text=True, timeout=60
    )
    return result.returncode, result.stderr
