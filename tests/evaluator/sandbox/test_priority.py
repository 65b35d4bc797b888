"""Who has had a processor, and who has not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from evaluator.sandbox.priority import was_starved

_BUSY = "while :; do :; done"


def test_processes_that_wait_for_each_other_have_not_been_starved() -> None:
    count = 8 * len(os.sched_getaffinity(0))
    loops = ["sh", "-c", f"for i in $(seq {count}); do sh -c '{_BUSY}' & done; wait"]
    began = time.monotonic()
    process = subprocess.Popen(loops, start_new_session=True)
    try:
        time.sleep(3)
        assert not was_starved(process.pid, time.monotonic() - began)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_who_wants_no_processor_is_not_starved() -> None:
    process = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        time.sleep(2)
        assert not was_starved(process.pid, 2)
    finally:
        process.kill()
        process.wait()


@pytest.mark.usefixtures("busy_processors")
def test_who_gives_way_on_a_busy_machine_is_starved() -> None:
    began = time.monotonic()
    busy = "from evaluator.sandbox.priority import lower_priority\nlower_priority()\nwhile True: pass"
    process = subprocess.Popen([sys.executable, "-c", busy], start_new_session=True)
    try:
        time.sleep(5)
        assert was_starved(process.pid, time.monotonic() - began)
    finally:
        process.kill()
        process.wait()
