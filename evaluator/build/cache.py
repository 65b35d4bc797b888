"""The content-addressed cache of built extensions.

An entry is a folder ``<two digits>/<key>/`` with ``extension.so``, ``log.txt`` and ``artifact.json``. It is
written beside its place and moved there in one step, by the builder alone, and read-only from then on.
Only successes are kept: a failed build is cheap to repeat and its cause may be the machine.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from evaluator.build.resources import KernelResources

__all__ = ["Artifact", "ArtifactCache"]

_MANIFEST = "artifact.json"


@dataclass(frozen=True)
class Artifact:
    """A finished build. ``path`` is ``None`` where the sources could be compiled but not linked here."""

    key: str
    name: str
    path: str | None
    kernels: tuple[str, ...]
    seconds: float
    log: str
    resources: tuple[KernelResources, ...] = ()
    """What each CUDA kernel takes, for each architecture."""


class ArtifactCache:
    """Artifacts below one folder, which several builders may share."""

    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir(parents=True, exist_ok=True)

    def find(self, key: str) -> Artifact | None:
        folder = self._folder(key)
        try:
            data = json.loads((folder / _MANIFEST).read_text())
            artifact = Artifact(
                **{
                    **data,
                    "kernels": tuple(data["kernels"]),
                    "resources": tuple(KernelResources(**kernel) for kernel in data["resources"]),
                }
            )
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (ValueError, TypeError, KeyError):
            # Written by another version of this program, or damaged: as good as not there.
            shutil.rmtree(folder, ignore_errors=True)
            return None
        return artifact

    def store(self, artifact: Artifact, library: Path | None) -> Artifact:
        """Move ``library`` in and return the artifact with its final path."""
        folder = self._folder(artifact.key)
        folder.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=".new-", dir=folder.parent))
        final = None
        if library is not None:
            shutil.copyfile(library, staging / "extension.so")
            (staging / "extension.so").chmod(0o444)
            final = str(folder / "extension.so")
        placed = replace(artifact, path=final)
        (staging / "log.txt").write_text(artifact.log)
        (staging / _MANIFEST).write_text(json.dumps(asdict(placed)))
        staging.chmod(0o755)
        try:
            staging.rename(folder)
        except OSError:
            # Somebody else has stored the same content meanwhile.
            shutil.rmtree(staging)
        return placed

    @contextlib.contextmanager
    def building(self, key: str) -> Iterator[None]:
        """Hold the right to build ``key``; others wait. The kernel releases it if the holder dies."""
        folder = self._folder(key)
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder.parent / f".{key}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _folder(self, key: str) -> Path:
        return (self._root / key[:2] / key).absolute()
