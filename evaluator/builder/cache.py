"""The content-addressed cache of built extensions.

An entry is a folder ``<two digits>/<key>/`` with ``artifact.json`` and ``log.txt``, and ``extension.so`` where the
build succeeded. The SHA-256 of the library is in ``artifact.json`` and is compared at each use. The builder alone
writes an entry: beside its place first, then moved there in one step, and never changed afterwards.

The least recently used entries go when the cache is too large. A candidate's own error is kept as well, for a day. A
failure that may have been the machine's fault is not kept.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from evaluator.builder.resources import KernelResources

__all__ = ["Artifact", "ArtifactCache", "BuildFailure", "artifact_of"]

_MANIFEST: Final = "artifact.json"
_LIBRARY: Final = "extension.so"
_IN_USE_S: Final = 600.0
"""An entry that was found within so many seconds may be about to be read."""
_FAILURE_S: Final = 86400.0
_LACKS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR})
"""Errors that show a lack of the machine's, and no damage of an entry."""
_LOCK_DIGITS: Final = 3
_LOOK_SHARE: Final = 0.01


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
    """Resources of each CUDA kernel, for each architecture."""
    recipe: str = "plain"
    """The recipe that built it."""
    refusals: Mapping[str, str] = field(default_factory=dict)
    """The recipes that were tried before, each with the reason why it did not build it."""


@dataclass(frozen=True)
class BuildFailure:
    """The compiler refused, or took too long. ``message`` has the first real error first.

    ``toolchain_missing``: the fault is this machine's, not the candidate's.
    """

    name: str
    message: str
    log: str
    seconds: float
    timed_out: bool = False
    toolchain_missing: bool = False
    recipe: str = "plain"
    refusals: Mapping[str, str] = field(default_factory=dict)


class ArtifactCache:
    """Results of builds, below one folder, which several builders may share.

    ``limit_bytes`` bounds the whole cache: the least recently used entries make room. ``None``: no limit.
    """

    def __init__(self, root: Path, limit_bytes: int | None = None) -> None:
        self._root = root
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._stored_bytes: float = 0 if limit_bytes is None else limit_bytes
        """Bytes stored since the last count of all entries. It begins at the limit, because the amount is not known."""
        (root / "locks").mkdir(parents=True, exist_ok=True)

    def find(self, key: str) -> Artifact | BuildFailure | None:
        folder = self._folder(key)
        if not folder.is_dir():
            return None
        try:
            found = _read(folder)
            expired = isinstance(found, BuildFailure) and abs(time.time() - _stored_at(folder)) > _FAILURE_S
        except (OSError, ValueError, TypeError, KeyError) as error:
            if isinstance(error, OSError) and error.errno in _LACKS:
                raise
            # Written by another version of this program, damaged, or without its library: the entry counts as absent.
            expired = True
        if expired:
            # A new build needs its place.
            shutil.rmtree(folder, ignore_errors=True)
            return None
        with contextlib.suppress(OSError):
            os.utime(folder / _MANIFEST)
        return found

    def obtain(self, key: str) -> Artifact | BuildFailure | None:
        """The same as ``find``: there is nowhere else to look."""
        return self.find(key)

    def store(self, artifact: Artifact, library: Path | None) -> Artifact:
        """Copy ``library`` in and return the artifact with its final path."""
        path = None if library is None else str(self._folder(artifact.key) / _LIBRARY)
        placed = replace(artifact, path=path)
        manifest = {"artifact": asdict(placed), "sha256": None if library is None else _sha256(library)}
        self._place(artifact.key, manifest, artifact.log, library)
        return placed

    def store_failure(self, key: str, failure: BuildFailure) -> None:
        """Keep a failure whose cause is the candidate's alone."""
        self._place(key, {"failure": asdict(failure)}, failure.log, None)

    def _place(self, key: str, manifest: dict[str, Any], log: str, library: Path | None) -> None:
        folder = self._folder(key)
        folder.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=".new-", dir=folder.parent))
        try:
            if library is not None:
                shutil.copyfile(library, staging / _LIBRARY)
                (staging / _LIBRARY).chmod(0o444)
            (staging / "log.txt").write_text(log)
            (staging / _MANIFEST).write_text(json.dumps(manifest))
            staging.chmod(0o755)
            size = _size(staging)
            self._move(staging, folder)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        self._make_room(size)

    def _move(self, staging: Path, folder: Path) -> None:
        """Move an entry to its place, unless another builder has stored the same content meanwhile."""
        # The one that is there must be usable: its library is delivered in place of the new one.
        if not _moved(staging, folder) and self.find(folder.name) is None:
            # Where this fails as well, another builder has just replaced the same damaged entry.
            _moved(staging, folder)

    def _make_room(self, stored_bytes: int) -> None:
        """Remove the least recently used entries until the rest is within the limit."""
        if self._limit_bytes is None:
            return
        with self._lock:
            self._stored_bytes += stored_bytes
            if self._stored_bytes < _LOOK_SHARE * self._limit_bytes:
                return  # looking at every entry each time would take longer than building some
            self._stored_bytes = 0
        now = time.time()
        entries = sorted(self._entries())
        total = sum(size for _, size, _ in entries)
        for used, size, folder in entries:
            if total <= self._limit_bytes:
                break
            if abs(now - used) < _IN_USE_S:
                continue
            total -= size
            # Renamed first, so that no reader finds half of it; another builder may remove the same entry.
            with contextlib.suppress(OSError):
                gone = folder.rename(folder.with_name(f".old-{folder.name}"))
                shutil.rmtree(gone, ignore_errors=True)

    def _entries(self) -> Iterator[tuple[float, int, Path]]:
        """Yield time of use, bytes and folder of each entry, and of each folder that an interrupted builder left."""
        for folder in self._root.glob("??/*"):
            with contextlib.suppress(OSError):
                manifest = folder / _MANIFEST
                used = (manifest if manifest.exists() else folder).stat().st_mtime
                yield used, _size(folder), folder

    @contextlib.contextmanager
    def building(self, key: str) -> Iterator[None]:
        """Hold the right to build ``key``; other builders wait. The kernel releases it if the holder dies."""
        # A lock file for each key would never be removed; two keys that share one hardly ever meet.
        path = self._root / "locks" / key[:_LOCK_DIGITS]
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _folder(self, key: str) -> Path:
        return (self._root / key[:2] / key).absolute()


def artifact_of(data: Mapping[str, Any]) -> Artifact:
    """Build an artifact from its fields, as JSON has them. Raises ``TypeError`` or ``KeyError``."""
    return Artifact(
        **{
            **data,
            "kernels": tuple(data["kernels"]),
            "resources": tuple(KernelResources(**kernel) for kernel in data["resources"]),
        }
    )


def _read(folder: Path) -> Artifact | BuildFailure:
    manifest = json.loads((folder / _MANIFEST).read_text())
    if "failure" in manifest:
        return BuildFailure(**manifest["failure"])
    artifact = artifact_of(manifest["artifact"])
    if artifact.path is not None and _sha256(Path(artifact.path)) != manifest["sha256"]:
        raise ValueError(f"{artifact.path} differs from the stored file")
    return artifact


def _moved(staging: Path, folder: Path) -> bool:
    """Move ``staging`` to ``folder``; ``False``: there is a folder already."""
    try:
        staging.rename(folder)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise
        return False
    return True


def _stored_at(folder: Path) -> float:
    return (folder / "log.txt").stat().st_mtime


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())
