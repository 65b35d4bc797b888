"""Keeping processes running and ending them, with small real children."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from runtime.process_supervisor import STOPPING_S, ChildSpec, Supervisor
from tests.processes import Process, descendants, look, wait_until, wait_until_gone

_ROOT = Path(__file__).parent.parent.parent
_SLEEP = "import time; time.sleep(600)"
_DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); {_SLEEP}"
_PARENT = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {_SLEEP!r}]); {_SLEEP}"


@contextmanager
def supervised(
    tmp_path: Path, *, grace_s: float = STOPPING_S, **programs: str
) -> Iterator[tuple[Supervisor, list[str]]]:
    said: list[str] = []
    specs = [
        ChildSpec(name, [sys.executable, "-c", program], tmp_path / f"{name}.log") for name, program in programs.items()
    ]
    with (
        (tmp_path / "lock").open("w") as lock,
        Supervisor(specs, os.environ, said.append, keep=lock.fileno(), grace_s=grace_s) as supervisor,
    ):
        yield supervisor, said


def children() -> list[Process]:
    return [process for process in descendants(os.getpid()) if _SLEEP in process.command]


def test_a_child_that_dies_is_started_again(tmp_path: Path) -> None:
    with supervised(tmp_path, one=_SLEEP, two=_SLEEP) as (supervisor, said):
        wait_until(lambda: len(children()) == 2, "two children")
        victim, other = children()
        os.kill(victim.pid, signal.SIGKILL)

        def replaced() -> bool:
            supervisor.check()
            return bool(said) and len(children()) == 2 and victim not in children()

        wait_until(replaced, "a new child")
        assert other.alive
        assert said == [f"one ended (killed by SIGKILL); starting it again in 0.2 s (log: {tmp_path / 'one.log'})"]
        assert supervisor.deaths == {"one": 1, "two": 0}
    assert children() == []


def test_a_child_that_keeps_dying_is_started_less_and_less_often(tmp_path: Path) -> None:
    with supervised(tmp_path, one="raise SystemExit(7)") as (supervisor, said):
        deadline = time.monotonic() + 2.0
        while time.monotonic() < deadline:
            supervisor.check()
            time.sleep(0.02)
    starts = [f"one ended (exit status 7); starting it again in {delay} s " for delay in ("0.2", "0.4", "0.8")]
    assert [line.startswith(start) for line, start in zip(said, starts, strict=False)] == [True, True, True]
    assert 3 <= supervisor.deaths["one"] <= 4
    assert supervisor.last_status == {"one": 7}


def test_what_a_dead_child_leaves_behind_is_ended(tmp_path: Path) -> None:
    with supervised(tmp_path, one=_PARENT) as (supervisor, _):
        wait_until(lambda: len(children()) == 2, "a child and its child")
        before = children()
        os.kill(before[0].pid, signal.SIGKILL)
        wait_until(lambda: supervisor.check() or supervisor.deaths["one"], "its death")
        wait_until_gone(before)
    assert children() == []


def test_a_child_that_will_not_stop_is_killed(tmp_path: Path) -> None:
    with supervised(tmp_path, grace_s=0.5, deaf=_DEAF) as (_, said):
        wait_until(lambda: (tmp_path / "deaf.log").read_text() == "deaf\n", "the child to be deaf")
    assert said == [f"deaf did not stop by itself and was killed (log: {tmp_path / 'deaf.log'})"]
    assert children() == []


def test_a_log_is_kept_short_while_its_child_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.process_supervisor._LOG_BYTES", 10_000)
    chatty = "import time\nfor number in range(10**9): print(f'{number:99d}', flush=True); time.sleep(0.001)"
    log, old = tmp_path / "one.log", tmp_path / "one.old.log"
    with supervised(tmp_path, one=chatty) as (supervisor, _):
        wait_until(lambda: supervisor.check() or old.exists(), "the log to be moved")
        first = old.read_text()
        wait_until(lambda: supervisor.check() or old.read_text() > first, "the log to be moved again")
        assert supervisor.deaths == {"one": 0}
        assert log.stat().st_size < 100_000
        assert "\x00" not in log.read_text()


def test_what_a_dead_child_said_last_is_told_with_its_log(tmp_path: Path) -> None:
    with supervised(tmp_path, one="print('first'); print('the reason'); raise SystemExit(7)") as (supervisor, said):
        wait_until(lambda: supervisor.check() or said, "its death")
    assert said[0].endswith(f"(log: {tmp_path / 'one.log'}, which ends with: the reason)")


def test_children_end_when_their_supervisor_is_killed(tmp_path: Path) -> None:
    (tmp_path / "sleeper.py").write_text(_SLEEP)
    program = (
        "import os, sys, time; from pathlib import Path; from runtime.process_supervisor import *\n"
        "argv = [sys.executable, '-m', 'runtime.parent_death', 'sleeper']\n"
        f"spec = ChildSpec('one', argv, Path({str(tmp_path)!r}) / 'log')\n"
        "with Supervisor([spec], os.environ, print, keep=0): time.sleep(600)\n"
    )
    environment = {**os.environ, "PYTHONPATH": f"{_ROOT}{os.pathsep}{tmp_path}"}
    supervisor = subprocess.Popen([sys.executable, "-c", program], env=environment, stdin=subprocess.DEVNULL)
    wait_until(lambda: "sleeper" in "".join(each.command for each in descendants(supervisor.pid)), "the child")
    left = descendants(supervisor.pid)
    assert look(supervisor.pid) is not None
    supervisor.kill()
    supervisor.wait()
    wait_until_gone(left, timeout_s=10)
