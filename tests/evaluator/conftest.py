"""Engines for the evaluator's tests: one per device and session, as a worker keeps them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from evaluator.engine import Engine, available_devices
from evaluator.problem import Problem, load_problems

_ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="session")
def problems() -> dict[str, Problem]:
    return load_problems(_ROOT / "reference_models")


@pytest.fixture(scope="session")
def artifact_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("artifacts")


@pytest.fixture(scope="session")
def cpu_engine(artifact_cache: Path) -> Iterator[Engine]:
    with Engine(device="cpu", cache_dir=artifact_cache) as engine:
        yield engine


@pytest.fixture(scope="session")
def cuda_engine(artifact_cache: Path) -> Iterator[Engine]:
    if "cuda:0" not in available_devices():
        pytest.skip("no CUDA device on this machine")
    with Engine(device="cuda:0", cache_dir=artifact_cache) as engine:
        yield engine
