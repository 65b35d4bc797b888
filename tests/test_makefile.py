"""The Makefile's own decisions."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with an environment whose Python only ends with the status in a file."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in ("requirements.lock", "pyproject.toml", "setup.py", "kerneljudge/pyproject.toml",
                 "evaluator/builder/recipes/headers.py", "evaluator/builder/recipes/instantiating.py"):  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (0, 0))
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\nexit "$(cat status)"\n')
    python.chmod(0o755)
    (tmp_path / ".venv" / ".installed").touch()
    return tmp_path


def _prepared(checkout: Path, status: int) -> tuple[str, bool]:
    """What make says of the preparation, and whether it counts as done."""
    (checkout / "status").write_text(str(status))
    argv = ["make", "--no-print-directory", ".venv/.prepared"]
    made = subprocess.run(argv, cwd=checkout, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True)
    return made.stdout, (checkout / ".venv" / ".prepared").exists()


def test_a_preparation_that_fails_stops_nothing_and_counts_as_undone(checkout: Path) -> None:
    said, done = _prepared(checkout, 1)
    assert not done
    assert "not all of it is prepared" in said
    assert "Error" not in said
    assert _prepared(checkout, 0) == ("", True)
    assert "up to date" in _prepared(checkout, 1)[0]
