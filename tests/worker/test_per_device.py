"""One worker process for each device, from one command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from evaluator.errors import DeviceUnavailable
from runtime.settings import Settings
from storage.queue.workers import list_workers
from tests.processes import descendants, wait_until, wait_until_gone
from tests.worker.conftest import Installation
from worker.per_device import devices_for

Install = Callable[..., Installation]

_ROOT = Path(__file__).parent.parent.parent


def test_the_devices_are_those_of_the_setting_that_take_from_the_queue(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, devices=["cpu", "cuda:0", "cuda:3"])
    assert devices_for(settings, "evaluate.cuda") == ["cuda:0", "cuda:3"]
    assert devices_for(settings, "evaluate.cpu") == ["cpu"]
    assert devices_for(Settings(data_dir=tmp_path), "evaluate.cpu") == ["cpu"]


def test_without_a_device_of_the_kind_nothing_starts(tmp_path: Path) -> None:
    with pytest.raises(DeviceUnavailable, match=r"no device for queue evaluate\.cuda; there is cpu"):
        devices_for(Settings(data_dir=tmp_path, devices=["cpu"]), "evaluate.cuda")


def test_a_builder_has_no_devices() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "worker", "--queue", "build", "--device", "all"],
        cwd=_ROOT,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 2
    assert "a builder has no device" in ended.stderr


def test_a_worker_that_dies_is_started_again_and_all_end_with_their_crew(install: Install) -> None:
    installation: Installation = install(devices=["cpu"])
    environment = {
        **os.environ,
        "KERNELJUDGE_DATA_DIR": str(installation.settings.data_dir),
        "KERNELJUDGE_DATABASE_URL": installation.settings.database_url,
        "KERNELJUDGE_DEVICES": "cpu",
    }
    argv = [sys.executable, "-m", "worker", "--queue", "evaluate.cpu", "--device", "all"]
    per_device = subprocess.Popen(argv, cwd=_ROOT, env=environment)

    def registered() -> set[str]:
        with installation.readers() as session:
            return {worker.id for worker in list_workers(session) if worker.device == "cpu"}

    try:
        wait_until(registered, "the worker to register", 120)
        (first,) = registered()
        (worker,) = [each for each in descendants(per_device.pid) if "runtime.parent_death worker" in each.command]
        os.kill(worker.pid, signal.SIGKILL)
        wait_until(lambda: registered() - {first}, "another worker to register", 120)
        everybody = descendants(per_device.pid)
        per_device.send_signal(signal.SIGTERM)
        assert per_device.wait(timeout=40) == 0
        wait_until_gone(everybody)
    finally:
        per_device.kill()
        per_device.wait()
