"""Engines for the evaluator's tests: one per device and session, as a worker keeps them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evaluator.engine import Engine, available_devices
from evaluator.evaluation import Evaluation
from evaluator.problems.problem import Problem
from evaluator.stages.evaluation_stage import EvaluationStage
from tests.corpus import known_problems
from tests.redteam.grading import build_ahead

_ROOM_BYTES = 110 * 2**30


@pytest.fixture(scope="session")
def problems() -> dict[str, Problem]:
    return known_problems()


@pytest.fixture(scope="session")
def artifact_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("artifacts")


@pytest.fixture(scope="module")
def built(request: pytest.FixtureRequest, artifact_cache: Path, problems: dict[str, Problem]) -> None:
    """Every extension of the module's selected cases, built at once and ahead: one after the other they would take
    minutes."""
    # Of this module alone: other tests have cases as parameters and evaluate none of them.
    selected = {item.callspec.params["case"] for item in request.session.items if item.path == request.path}
    build_ahead(selected, artifact_cache, problems)


@pytest.fixture(scope="session")
def cpu_engine(artifact_cache: Path) -> Iterator[Engine]:
    with Engine(device="cpu", cache_dir=artifact_cache) as engine:
        yield engine


@pytest.fixture
def busy_processors() -> Iterator[None]:
    """Processors that whoever gives way has next to nothing of."""
    loop = ["sh", "-c", "while :; do :; done"]
    running = [subprocess.Popen(loop) for _ in os.sched_getaffinity(0)]
    yield
    for process in running:
        process.kill()
        process.wait()


@pytest.fixture(scope="session")
def cuda_engine(artifact_cache: Path) -> Iterator[Engine]:
    if "cuda:0" not in available_devices():
        pytest.skip("no CUDA device on this machine")
    with Engine(device="cuda:0", cache_dir=artifact_cache) as engine:
        yield engine


@pytest.fixture
def has_room(cuda_engine: Engine) -> bool:
    """Whether four ReLUs of 6 GiB, or two and a baseline that is kept, are on the device side by side: on an H200 they
    are, on an H100 of 80 GB each is evaluated alone."""
    return bool(cuda_engine.environment["memory_bytes"] > _ROOM_BYTES)


@pytest.fixture
def chance() -> None:
    """For a test in which an evaluation may be made once more, since time seemed to be left out."""


@pytest.fixture
def without_chance(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine that happens to an honest candidate now and then, and to the processes that a test counts."""
    evaluate = EvaluationStage._evaluate

    def once(self: EvaluationStage, *arguments: Any) -> list[tuple[Evaluation, str] | None]:
        return [found and (found[0], "") for found in evaluate(self, *arguments)]

    if "chance" not in request.fixturenames:
        monkeypatch.setattr(EvaluationStage, "_evaluate", once)
