"""Running a case of the corpus against a copy of the evaluator that a mutation has changed."""

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

from tests.redteam.mutations import Mutation

__all__ = ["complaints_about_mutant", "somebody_who_answers"]

_ROOT = Path(__file__).parent.parent.parent


def complaints_about_mutant(mutation: Mutation, folder: Path) -> list[str]:
    """What is not as the mutation's case expects it, once the copy in ``folder`` is without the defence."""
    shutil.copytree(_ROOT / "evaluator", folder / "evaluator", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(_ROOT / "pyproject.toml", folder)  # which makes a checkout of it
    for name, old, new in mutation.changes:
        file = folder / "evaluator" / name
        text = file.read_text()
        assert text.count(old) == 1, f"{name} has no such place any more: the mutation says nothing"
        file.write_text(text.replace(old, new))
    paths = [str(folder), str(_ROOT), *(path for path in sys.path if path)]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "tests.redteam.mutant", mutation.case],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    complaints: list[str] = json.loads(done.stdout.strip().splitlines()[-1])
    return complaints


@contextlib.contextmanager
def somebody_who_answers() -> Iterator[None]:
    """A server at a place where an attack looks for one; where that is taken, somebody answers already."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            stack.enter_context(socket.create_server(("127.0.0.1", 8000)))
        yield
