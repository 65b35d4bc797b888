"""Running a case of the corpus against a copy of the evaluator that a mutation has changed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from evaluator.interpreter import python_command
from evaluator.processes.environment import ProcessEnvironment
from tests.redteam.mutations import Change, Mutation

__all__ = ["Mutants", "somebody_who_answers"]

_ROOT = Path(__file__).parent.parent.parent
_TIMEOUT_S: Final = 280
_TRIES: Final = 20


class Mutants:
    """A process that mutants are forked from, one at a time, and the folder that they share."""

    def __init__(self, folder: Path) -> None:
        self._peak_rates = folder / "peak-rates"
        self._peak_rates.mkdir()
        # What the trusted processes of an engine have from their start, so that what is forked from it has it, too.
        environment = ProcessEnvironment("cpu", cache_dir=folder / "cache", scratch_dir=folder).torch_environment
        paths = [str(_ROOT), environment["PYTHONPATH"]]
        self._process = subprocess.Popen(
            python_command("-m", "tests.redteam.warm_start"),
            env={**os.environ, **environment, "PYTHONPATH": os.pathsep.join(paths)},
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Mutants:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._process.kill()
        self._process.communicate()

    def complaints_without(self, mutation: Mutation, folder: Path) -> list[str]:
        """What is not as the mutation's case expects it, once the copy in ``folder`` is without the defence.

        Whether an attack gets through may depend on chance, and on a busy machine figures are unsettled, so that one
        which is stopped is tried again.
        """
        return self.complaints([mutation.case], folder, mutation.changes, tries=_TRIES, timed=mutation.timed)

    def complaints(
        self, cases: Sequence[str], folder: Path, changes: Sequence[Change] = (), *, tries: int = 1, timed: bool = False
    ) -> list[str]:
        """What is not as the cases expect it of a copy of the evaluator with these changes, as ``mutant.main``."""
        _change_copy(folder, changes)
        request = {
            "folder": str(folder),
            "paths": [str(folder), str(_ROOT), *(path for path in sys.path if path)],
            "timeout_s": _TIMEOUT_S,
            "run": {"names": list(cases), "tries": tries, "timed": timed, "peak_rates": str(self._peak_rates)},
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        assert answer["status"] == 0, answer["errors"]
        found: list[str] = json.loads(answer["printed"].strip().splitlines()[-1])
        return found


def _change_copy(folder: Path, changes: Sequence[Change]) -> None:
    # With what was compiled: a compiled module counts as long as its source is as old and as long as it was.
    shutil.copytree(_ROOT / "evaluator", folder / "evaluator")
    shutil.copy(_ROOT / "pyproject.toml", folder)  # which makes a checkout of it
    for name, old, new in changes:
        file = folder / "evaluator" / name
        text = file.read_text()
        assert text.count(old) == 1, f"{name} has no such place any more: the mutation says nothing"
        file.write_text(text.replace(old, new))
        for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
            compiled.unlink()


@contextlib.contextmanager
def somebody_who_answers() -> Iterator[None]:
    """A server at a place where an attack looks for one; where that is taken, somebody answers already."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            stack.enter_context(socket.create_server(("127.0.0.1", 8000)))
        yield
