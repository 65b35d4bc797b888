"""Builds that fail because the machine had no room for them: tried again, and no candidate's fault where it is so."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Final

import pytest

from evaluator.builder import builder as building
from evaluator.builder.builder import Builder
from evaluator.builder.cache import Artifact, ArtifactCache, BuildFailure
from evaluator.builder.recipes.ladder import Recipe
from evaluator.builder.request import BuildRequest
from evaluator.errors import InfrastructureFault
from evaluator.interpreter import python_environment
from evaluator.sandbox.confinement import Confinement
from evaluator.sandbox.filesystem import Root

_REQUEST: Final = BuildRequest(name="one", cpp_sources=("int one;",))
_RECIPE: Final = """
import json, os, sys
from pathlib import Path
attempts = Path({attempts!r})
count = len(attempts.read_text()) if attempts.exists() else 0
attempts.write_text("x" * (count + 1))
json.load(sys.stdin)
if count < {failures}:
    print({log!r}, flush=True)
    if {killed}:
        os.kill(os.getpid(), 9)
    sys.stderr.write(json.dumps({{"outcome": "failed", "message": "", "directory": os.getcwd()}}) + "\\n")
    sys.stderr.flush()
    os._exit(1)
os.write(int(sys.argv[1]), b"library")
sys.stderr.write(json.dumps({{"outcome": "built", "linked": True, "directory": os.getcwd()}}) + "\\n")
sys.stderr.flush()
os._exit(0)
"""
_KILLED: Final = "c++: fatal error: Killed signal terminated program cc1plus\nmain.cpp:1:2: error: Killed"
_MISTAKE: Final = "main.cpp:1:2: error: expected ';'"


class Bench:
    """A builder whose only recipe fails so often, saying ``log``; ``killed``: it is killed, and reports nothing."""

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, *, failures: int, log: str, killed: bool = False
    ) -> None:
        self._attempts = folder / "attempts"
        modules = folder / "modules"
        modules.mkdir()
        text = _RECIPE.format(attempts=str(self._attempts), failures=failures, log=log, killed=killed)
        (modules / "made_up_recipe.py").write_text(text)
        monkeypatch.syspath_prepend(str(modules))
        recipe = Recipe("plain", 1, "made_up_recipe", lambda _request: True)
        self.cache = ArtifactCache(folder / "cache")
        self.builder = Builder(
            self.cache,
            {"nvcc": None},
            python_environment({"PATH": os.environ["PATH"]}),
            folder,
            Confinement(Root((), (), (), 2**30), 2**32, 256, 2**30),
            slots=1,
            recipes=(recipe,),
        )

    def build(self, timeout_s: float = 60.0) -> Artifact | BuildFailure:
        return self.builder.build(_REQUEST, timeout_s, threading.Event())[0]

    @property
    def attempts(self) -> int:
        return len(self._attempts.read_text())


def test_a_compiler_that_was_killed_once_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path, monkeypatch, failures=1, log=_KILLED)
    assert isinstance(bench.build(), Artifact)
    assert bench.attempts == 2


@pytest.mark.parametrize("lacking", ["kills", "memory", "disk"])
def test_where_the_machine_has_no_room_that_is_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacking: str
) -> None:
    kills = iter(range(100))
    if lacking == "kills":
        monkeypatch.setattr(building, "out_of_memory_kills", lambda: next(kills))
    elif lacking == "memory":
        monkeypatch.setattr(building, "available_memory_bytes", lambda: 2**20)
    else:
        monkeypatch.setattr(building, "_MIN_DISK_BYTES", 2**62)
    bench = Bench(tmp_path, monkeypatch, failures=9, log=_KILLED)
    with pytest.raises(InfrastructureFault, match="an extension could not be built"):
        bench.build()
    assert bench.attempts == 2


def test_a_builders_process_that_was_killed_once_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, monkeypatch, failures=1, log="", killed=True)
    assert isinstance(bench.build(), Artifact)


def test_a_builders_process_that_is_killed_twice_is_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path, monkeypatch, failures=2, log=_MISTAKE, killed=True)
    failure = bench.build()
    assert isinstance(failure, BuildFailure)
    assert failure.toolchain_missing
    assert "without a report" in failure.message
    # And it is kept nowhere.
    assert isinstance(bench.build(), Artifact)


def test_a_killed_process_is_a_fault_of_a_machine_that_kills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kills = iter(range(100))
    monkeypatch.setattr(building, "out_of_memory_kills", lambda: next(kills))
    bench = Bench(tmp_path, monkeypatch, failures=9, log="", killed=True)
    with pytest.raises(InfrastructureFault, match="killed processes of this machine"):
        bench.build()


def test_memory_that_is_back_at_the_end_was_lacking_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed compiler gives its memory back, before anybody can look."""
    available = iter([2**20])
    monkeypatch.setattr(building, "available_memory_bytes", lambda: next(available, 2**40))
    bench = Bench(tmp_path, monkeypatch, failures=9, log=_KILLED)
    with pytest.raises(InfrastructureFault, match="no memory left"):
        bench.build()


def test_a_source_that_says_it_was_killed_is_its_own_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``#error Killed``: a compiler's word alone is a second attempt, and no more."""
    bench = Bench(tmp_path, monkeypatch, failures=9, log=_KILLED)
    monkeypatch.setattr(building, "out_of_memory_kills", lambda: 0)
    failure = bench.build()
    assert isinstance(failure, BuildFailure)
    assert failure.message == "main.cpp:1: Killed"
    assert bench.attempts == 2


def test_a_mistake_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path, monkeypatch, failures=9, log=_MISTAKE)
    monkeypatch.setattr(building, "available_memory_bytes", lambda: 2**20)
    assert isinstance(bench.build(), BuildFailure)
    assert bench.attempts == 1
