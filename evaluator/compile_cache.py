"""Archives of files that a candidate's own compilers made at run time, kept for its next evaluation. Torch-free.

Triton and ``torch.compile`` compile in a candidate's first calls, on the device's time, into folders that end with the
process. Where an evaluation has passed, these folders are kept as one archive, for evaluations of the very same source
of the same problem under the same settings and versions. The archive is opaque to everything outside of the sandbox.
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
from evaluator.problem import Problem

__all__ = ["CompileCache"]

_FORMAT: Final = 1


class CompileCache:
    """Archives below one folder, which several engines may share; those used longest ago make room beyond
    ``limit_bytes``."""

    def __init__(self, root: Path, limit_bytes: int) -> None:
        self._root = root.absolute()
        self._limit_bytes = limit_bytes

    @staticmethod
    def key(problem: Problem, config: EvalConfig, source: str | None, environment: Mapping[str, Any]) -> str:
        """The SHA-256, in hex, over everything that compiled files may depend on, and over everything that a candidate
        may have written them from: no other source is given them. ``source`` of ``None``: the reference as a baseline.
        """
        content = {
            "format": _FORMAT,
            "problem": problem.id,
            "version": problem.version,
            "size": config.size,
            "precision": config.precision,
            "source": source,
            "baseline": config.baseline if source is None else None,
            "environment": dict(environment),
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()

    def holds(self, key: str) -> bool:
        return self._path(key).is_file()

    def open(self, key: str) -> int | None:
        """A descriptor that reads the archive of ``key``, for the caller to close; ``None`` where there is none."""
        path = self._path(key)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return descriptor

    def keep(self, key: str, archive: Path) -> None:
        """Take a copy of ``archive`` in. Raises ``OSError``."""
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, staged = tempfile.mkstemp(prefix=".new-", dir=path.parent)
        try:
            with archive.open("rb") as source, os.fdopen(descriptor, "wb") as target:
                shutil.copyfileobj(source, target)
            Path(staged).replace(path)
        except OSError:
            Path(staged).unlink(missing_ok=True)
            raise
        self._make_room()

    def forget(self, key: str) -> None:
        """Have no archive of ``key``."""
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
            path.unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self._root / key[:2] / f"{key}.tar"
