"""Every command of docker-compose.yml, outside a container: with the environment that image and service give it.

What differs is where things are: the servers are private ones, the folders temporary, the port a free one.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kerneljudge.client import Client
from tests.processes import wait_until
from tests.services import free_port
from tests.test_deployment import ROOT, compose, dockerfile, filled, image_environment, nearest

_FAULT_STATUS = 3


@dataclass
class Deployment:
    """The servers, and what the services of docker-compose.yml are given here."""

    folder: Path
    given: Mapping[str, str]
    port: int = field(default_factory=free_port)

    def environment(self, name: str) -> dict[str, str]:
        """As compose makes it: the image's variables, then the service's."""
        service = compose()["services"][name]
        _, stages = dockerfile()
        variables = image_environment(stages, service["build"]["target"])
        for variable, value in service["environment"].items():
            if value is not None:
                variables[variable] = filled(value, POSTGRES_PASSWORD="abc", REDIS_PASSWORD="abc", **self.given)
        variables["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        prepared = os.environ.get("KERNELJUDGE_PREPARED_DIR")
        return {variable: self._here(value) for variable, value in variables.items()} | (
            {"KERNELJUDGE_PREPARED_DIR": prepared} if prepared else {}
        )

    def command(self, name: str) -> list[str]:
        """What the container starts."""
        service = compose()["services"][name]
        _, stages = dockerfile()
        command = service.get("command") or self._words(nearest(stages, service["build"]["target"], "CMD"))
        return [sys.executable, *command[1:]]

    def is_healthy(self, name: str) -> bool:
        """What the container's health check says."""
        _, stages = dockerfile()
        check = nearest(stages, compose()["services"][name]["build"]["target"], "HEALTHCHECK")
        argv = [sys.executable, *self._words(check.partition("CMD ")[2])[1:]]
        argv = [self._here(word) for word in argv]
        return subprocess.run(argv, cwd=ROOT, env=self.environment(name), capture_output=True).returncode == 0

    @contextlib.contextmanager
    def running(self, name: str) -> Iterator[subprocess.Popen[bytes]]:
        """The service, until it is told to stop, which must go well."""
        process = subprocess.Popen(self.command(name), cwd=ROOT, env=self.environment(name))
        try:
            yield process
            process.send_signal(signal.SIGTERM)
            # Uvicorn, once it has ended in an orderly way, lets the signal have its usual effect.
            assert process.wait(timeout=60) in (0, -signal.SIGTERM), name
        finally:
            process.kill()
            process.wait()

    def new_key(self) -> str:
        """As the documentation has the first one made: ``docker compose run --rm api python -m kerneljudge keys
        create``."""
        command = [sys.executable, "-m", "kerneljudge", "keys", "create", "tester", "--scope", "submit", "--json"]
        environment = self.environment("api")
        made = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
        return str(json.loads(made.stdout)["key"])

    def _words(self, text: str) -> list[str]:
        words: list[str] = json.loads(text)
        return words

    def _here(self, text: str) -> str:
        """Places of the image as they are on this machine."""
        for theirs, ours in (
            ("/srv/kerneljudge", str(ROOT)),
            ("/data", str(self.folder)),
            ("127.0.0.1:8000", f"127.0.0.1:{self.port}"),
            ("0.0.0.0", "127.0.0.1"),
        ):
            text = text.replace(theirs, ours)
        return str(self.port) if text == "8000" else text


@pytest.fixture
def deployment(new_postgresql_database: Callable[[], str], redis_url: str, tmp_path: Path) -> Deployment:
    given = {"KERNELJUDGE_DATABASE_URL": new_postgresql_database(), "KERNELJUDGE_BROKER_URL": redis_url}
    for folder in ("cache", "scratch"):
        (tmp_path / folder).mkdir()
    return Deployment(tmp_path, given)


def test_what_the_profile_for_cpus_starts_grades_a_submission(deployment: Deployment) -> None:
    migrate = subprocess.run(deployment.command("migrate"), cwd=ROOT, env=deployment.environment("migrate"))
    assert migrate.returncode == 0
    services = ("api", "cpu-build-worker", "cpu-worker")
    with contextlib.ExitStack() as running:
        for name in services:
            assert not deployment.is_healthy(name), "not before it is there"
            running.enter_context(deployment.running(name))
        for name in services:
            wait_until(lambda name=name: deployment.is_healthy(name), f"{name} to be healthy", 120)  # type: ignore[misc]
        key = deployment.new_key()
        with Client(f"http://127.0.0.1:{deployment.port}", api_key=key) as client:
            record: Any = client.submit("relu", code="raise ImportError('no')\nclass ModelNew: pass\n", device="cpu")
            assert client.wait(record["id"], timeout_s=120)["verdict"] == "load_error"
            (builder, evaluator) = sorted(client.workers(), key=lambda worker: str(worker["kind"]))
    assert (builder["kind"], evaluator["kind"], evaluator["device"]) == ("build", "evaluate", "cpu")


def test_what_builds_for_gpus_needs_none(deployment: Deployment) -> None:
    with deployment.running("build-worker"):
        wait_until(lambda: deployment.is_healthy("build-worker"), "the build worker to be healthy", 120)


def test_what_evaluates_on_gpus_says_what_it_lacks(deployment: Deployment) -> None:
    environment = deployment.environment("gpu-worker") | {"KERNELJUDGE_DEVICES": "cpu"}
    ended = subprocess.run(deployment.command("gpu-worker"), cwd=ROOT, env=environment, capture_output=True, text=True)
    assert ended.returncode == _FAULT_STATUS
    assert "no device for queue evaluate.cuda; there is cpu" in ended.stderr
