"""Preparations: files that a recipe needs and that are made once for this machine's toolchain. Torch-free.

A preparation lies in ``<root>/<its name>/<key>/`` and is made there, because compilers remember paths. It counts once
its manifest is written. The key stands for the *facts* that it depends on (torch, Python, compilers, …): with another
toolchain it is simply not found.

Only trusted code writes here, and nothing of a candidate's is ever compiled here; compilers see it read-only.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from evaluator.devices.discovery import compiler_versions, machine_memory_bytes
from evaluator.interpreter import python_command

__all__ = [
    "Preparation",
    "PreparationFailed",
    "Prepared",
    "ask_torch",
    "compile_each",
    "find",
    "make",
    "root",
    "run_tool",
    "toolchain_facts",
    "torch_folder",
]

_MANIFEST: Final = "manifest.json"
_FORMAT: Final = 1
_TOOL_S: Final = 900.0

_Wanted = TypeVar("_Wanted")
_Made = TypeVar("_Made")

Tell = Callable[[str], None]
"""A receiver of lines about the progress."""


class PreparationFailed(Exception):
    """The preparation could not be made; the message has the reason in one line."""


@dataclass(frozen=True)
class Preparation:
    """A kind of files that are made once for a toolchain.

    Each function gets the environment that compilers will get. ``missing`` names the tool that this machine lacks, or
    is ``None``. ``facts`` is all that decides whether the made files can be used (JSON). ``make_in`` fills a given
    folder, tells each step, and raises ``PreparationFailed``. ``gain``: the advantage for builds.
    """

    name: str
    gain: str
    missing: Callable[[Mapping[str, str]], str | None]
    facts: Callable[[Mapping[str, str]], Mapping[str, Any]]
    make_in: Callable[[Path, Mapping[str, str], Tell], None]


@dataclass(frozen=True)
class Prepared:
    """The prepared ``folder``, and the seconds that making it took; 0 where it was there already."""

    folder: Path
    size_bytes: int
    seconds: float


def root() -> Path:
    """The folder of all preparations: ``KERNELJUDGE_PREPARED_DIR``, or one within this Python's own."""
    given = os.environ.get("KERNELJUDGE_PREPARED_DIR")
    return Path(given).absolute() if given else Path(sys.prefix, "share", "kerneljudge", "prepared")


def find(preparation: Preparation, environment: Mapping[str, str]) -> Prepared | None:
    """Find the preparation for this toolchain; ``None`` where there is none, or a damaged one."""
    facts = preparation.facts(environment)
    folder = _place(preparation, facts)
    try:
        manifest = json.loads((folder / _MANIFEST).read_text())
        files = dict(manifest["files"])
        if manifest["facts"] != facts or any((folder / name).stat().st_size != size for name, size in files.items()):
            return None
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return Prepared(folder, sum(files.values()), 0.0)


def make(preparation: Preparation, environment: Mapping[str, str], tell: Tell) -> Prepared:
    """Find the preparation, or make it. Raises ``PreparationFailed``."""
    found = find(preparation, environment)
    if found is not None:
        return found
    begin = time.monotonic()
    facts = preparation.facts(environment)
    folder = _place(preparation, facts)
    with _locked(folder.parent):
        found = find(preparation, environment)
        if found is not None:
            return found  # another process has just made it
        shutil.rmtree(folder, ignore_errors=True)
        try:
            folder.mkdir()
            preparation.make_in(folder, environment, tell)
            files = {str(path.relative_to(folder)): path.stat().st_size for path in folder.rglob("*") if path.is_file()}
            for path in (folder, *folder.rglob("*")):
                # The compilers' user may be another one than the preparing user.
                if not path.is_symlink():
                    path.chmod(0o755 if path.is_dir() else 0o444)
            manifest = folder / _MANIFEST
            manifest.write_text(json.dumps({"facts": facts, "files": files}, indent=1))
            manifest.chmod(0o444)
        except BaseException as error:
            shutil.rmtree(folder, ignore_errors=True)
            if isinstance(error, OSError):
                raise PreparationFailed(f"{error.filename or folder}: {error.strerror}") from error
            raise
    return Prepared(folder, sum(files.values()), time.monotonic() - begin)


def toolchain_facts(environment: Mapping[str, str]) -> dict[str, Any]:
    """The facts that every use of torch's headers depends on: torch, Python, the C++ compiler."""
    compiler = environment.get("CXX", "c++")
    version = torch_folder() / "version.py"
    return {
        "format": _FORMAT,
        "torch": str(torch_folder()),
        # It names the commit: another build of torch has other headers.
        "torch_version": hashlib.sha256(version.read_bytes()).hexdigest() if version.is_file() else None,
        "python": sys.version,
        "python_headers": sysconfig.get_path("include"),
        "compiler": compiler,
        "compiler_path": _real_path(compiler, environment),
        "compiler_version": compiler_versions()["compiler"],
        # torch puts one of them before the compiler where it is there.
        "wrappers": [_real_path(name, environment) for name in ("ccache", "sccache")],
    }


def torch_folder() -> Path:
    """The folder of torch's installation, found without importing torch."""
    spec = importlib.util.find_spec("torch")
    return Path("torch" if spec is None or spec.origin is None else spec.origin).parent


def run_tool(command: list[str], environment: Mapping[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a tool in ``folder`` and return its result. Raises ``PreparationFailed``."""
    try:
        done = subprocess.run(
            command, env=environment, cwd=folder, capture_output=True, text=True, errors="replace", timeout=_TOOL_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PreparationFailed(str(error)) from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
        raise PreparationFailed(f"{Path(command[0]).name} failed: {last}")
    return done


def compile_each(
    compile_one: Callable[[_Wanted], _Made], wanted: Collection[_Wanted], *, bytes_each: int
) -> list[_Made]:
    """Call ``compile_one`` for each of ``wanted``, as many at a time as the machine has room for."""
    at_once = min(len(wanted), os.cpu_count() or 1, machine_memory_bytes() // bytes_each)
    with ThreadPoolExecutor(max(1, at_once)) as pool:
        return list(pool.map(compile_one, wanted))


def ask_torch(module: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the JSON object that a module of ours prints, which imports torch. Raises ``PreparationFailed``."""
    with tempfile.TemporaryDirectory(prefix="kerneljudge-prepare-") as folder:
        done = run_tool(python_command("-m", module), environment, Path(folder))
    try:
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError) as error:
        raise PreparationFailed(f"torch does not say how it builds: {error}") from error
    return answer


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Enter ``folder``, which is made if need be, one process at a time; the lock lies beside it.

    Raises ``PreparationFailed``.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder.with_name(f".{folder.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise PreparationFailed(f"{folder} cannot be written to: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _place(preparation: Preparation, facts: Mapping[str, Any]) -> Path:
    key = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    return root() / preparation.name / key[:16]


def _real_path(program: str, environment: Mapping[str, str]) -> str | None:
    found = shutil.which(program, path=environment.get("PATH"))
    return None if found is None else str(Path(found).resolve())
