"""The examples, as far as they go without the trainers' libraries, against a service that grades."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.api.conftest import LiveServer
from tests.kerneljudge.conftest import PROBLEM_IDS
from tests.kerneljudge.graded import PASSED, answer, graded_service, source

Load = Callable[[str], ModuleType]

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A service that grades."""
    with graded_service(tmp_path_factory.mktemp("examples")) as live:
        yield live


@pytest.fixture
def load(live: LiveServer, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Imports an example as its trainer does: by its path."""
    monkeypatch.setenv("KERNELJUDGE_URL", live.url)

    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


def test_every_example_is_tried() -> None:
    tried = {
        "grade_many",
        "skyrl_environment",
        "trl_environment",
        "trl_grpo",
        "verl_reward",
    }
    assert {path.stem for path in EXAMPLES.glob("*.py")} == tried


def test_grading_many(live: LiveServer, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(answer("build: refuse"))
    (tmp_path / "b.md").write_text(answer())
    done = subprocess.run(
        [sys.executable, EXAMPLES / "grade_many.py", "relu", tmp_path / "a.md", tmp_path / "b.md"],
        env={**os.environ, "KERNELJUDGE_URL": live.url, "PYTHONPATH": str(EXAMPLES.parent)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "a.md: compile_error\nVerdict: compile error while compiling" in done.stdout
    assert "b.md: passed\nVerdict: passed" in done.stdout


def test_trl(load: Load) -> None:
    module = load("trl_grpo")
    rows = module.rows()
    assert [row["problem"] for row in rows] == PROBLEM_IDS
    completions = [[{"role": "assistant", "content": text}] for text in (answer(), "no")]
    columns = {"problem": ["relu", "relu"], "completion_ids": [[1], [2]], "trainer_state": None}
    reward = module.kernel_reward(prompts=[rows[0]["prompt"]] * 2, completions=completions, **columns)
    assert asyncio.run(reward) == [PASSED, 0]


def test_trl_with_several_turns(load: Load) -> None:
    module = load("trl_environment")
    (row,) = (row for row in module.rows() if row["problem"] == "relu")
    environment = module.KernelEnvironment()
    environment.reset(**row)
    assert "compile error" in asyncio.run(environment.submit(source("build: refuse")))
    assert "passed" in asyncio.run(environment.submit(source()))
    assert environment.get_reward() == PASSED


def test_skyrl(load: Load) -> None:
    environment = load("skyrl_environment").KernelEnvironment(extras={"reward_spec": {"ground_truth": "relu"}})
    steps = [environment.step(answer("build: refuse" if turn < 3 else "")) for turn in range(4)]
    assert [step["done"] for step in steps] == [False, False, False, True]
    assert [step["reward"] for step in steps] == [0, 0, 0, PASSED]


def test_verl(load: Load) -> None:
    score = load("verl_reward").compute_score(
        data_source="kernels", solution_str=answer(), ground_truth=None, extra_info={"problem": "relu"}
    )
    assert asyncio.run(score)["score"] == PASSED
