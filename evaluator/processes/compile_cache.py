"""Archives of files that a candidate's own compilers made at run time, kept for its next evaluation. Torch-free.

Triton and ``torch.compile`` compile in a candidate's first calls, on the device's time, into folders that end with the
process. Where an evaluation has passed, these folders are kept as one archive. It serves evaluations of the very same
source of the same problem under the same settings and versions. Its SHA-256 stands before it and is compared at each
use. Nothing else outside of the sandbox reads it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from evaluator.config import EvalConfig
from evaluator.problems.problem import Problem

__all__ = ["CompileCache"]

_FORMAT: Final = 1
_DIGEST_BYTES: Final = 32


class CompileCache:
    """Archives below one folder, which several engines may share.

    The least recently used ones make room beyond ``limit_bytes``.
    """

    def __init__(self, root: Path, limit_bytes: int) -> None:
        self._root = root.absolute()
        self._limit_bytes = limit_bytes

    @staticmethod
    def key(problem: Problem, config: EvalConfig, source: str, environment: Mapping[str, Any]) -> str:
        """The SHA-256, in hex, over everything that compiled files may depend on.

        It also covers everything that a candidate may have written them from, so that no other source is given them.
        """
        content = {
            "format": _FORMAT,
            "problem": problem.id,
            "version": problem.version,
            "size": config.size,
            "precision": config.precision,
            "source": source,
            "environment": dict(environment),
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()

    def open(self, key: str) -> int | None:
        """Return a descriptor of the archive of ``key``, for the caller to close.

        ``None`` where there is none, or a damaged one.
        """
        path = self._path(key)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        with os.fdopen(os.dup(descriptor), "rb") as file:
            stored = file.read(_DIGEST_BYTES)
            is_whole = hashlib.file_digest(file, "sha256").digest() == stored
        if not is_whole:
            os.close(descriptor)
            self.forget(key)
            return None
        os.lseek(descriptor, _DIGEST_BYTES, os.SEEK_SET)
        with contextlib.suppress(OSError):
            os.utime(path)
        return descriptor

    def keep(self, key: str, archive: Path) -> bool:
        """Keep a copy of ``archive``, unless the same one is there; return whether it was kept. Raises ``OSError``."""
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        with archive.open("rb") as source:
            digest = hashlib.file_digest(source, "sha256").digest()
        with contextlib.suppress(OSError), path.open("rb") as known:
            if known.read(_DIGEST_BYTES) == digest:
                return False
        descriptor, staged = tempfile.mkstemp(prefix=".new-", dir=path.parent)
        try:
            with archive.open("rb") as source, os.fdopen(descriptor, "wb") as target:
                target.write(digest)
                shutil.copyfileobj(source, target)
            Path(staged).replace(path)
        except OSError:
            Path(staged).unlink(missing_ok=True)
            raise
        self._make_room()
        return True

    def forget(self, key: str) -> None:
        """Remove the archive of ``key``, as far as this folder may be written to."""
        with contextlib.suppress(OSError):
            self._path(key).unlink(missing_ok=True)

    def _make_room(self) -> None:
        found: list[tuple[float, int, Path]] = []
        for path in self._root.glob("??/*"):
            with contextlib.suppress(OSError):
                status = path.stat()
                found.append((status.st_mtime, status.st_size, path))
        total = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if total <= self._limit_bytes:
                return
            total -= size
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self._root / key[:2] / f"{key}.archive"
