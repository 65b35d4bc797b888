"""Every defence is needed: without it, an attack of the corpus gets through."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.redteam.mutations import MUTATIONS, Mutation

_ROOT = Path(__file__).parent.parent.parent


def _run(case: str, packages: Path) -> list[str]:
    paths = [str(packages), str(_ROOT), *(path for path in sys.path if path)]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "tests.redteam.mutant", case],
        cwd=packages,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    complaints: list[str] = json.loads(done.stdout.strip().splitlines()[-1])
    return complaints


@pytest.fixture(autouse=True)
def somebody_who_answers() -> Iterator[None]:
    """A server at a place where an attack looks for one; where that is taken, somebody answers already."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            stack.enter_context(socket.create_server(("127.0.0.1", 8000)))
        yield


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_without_this_defence_its_attack_gets_through(mutation: Mutation, tmp_path: Path) -> None:
    shutil.copytree(_ROOT / "evaluator", tmp_path / "evaluator", ignore=shutil.ignore_patterns("__pycache__"))
    for name, old, new in mutation.changes:
        file = tmp_path / "evaluator" / name
        text = file.read_text()
        assert text.count(old) == 1, f"{name} has no such place any more: the mutation says nothing"
        file.write_text(text.replace(old, new))
    assert _run(mutation.case, tmp_path), "the attack is stopped all the same"
