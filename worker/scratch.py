"""A temporary folder for the engine, and the removal of folders that killed workers left behind."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["own_scratch"]

_PREFIX: Final = "kerneljudge-"
_LOCK: Final = "lock"


@contextlib.contextmanager
def own_scratch(base: Path) -> Iterator[Path]:
    """Make a folder below ``base`` for this process alone, which is removed at the end.

    A folder's lock is free once its process is dead, however it died. Folders of dead processes, and nothing else below
    ``base``, are removed first.
    """
    base.mkdir(parents=True, exist_ok=True)
    with _locked(base / _LOCK, fcntl.LOCK_EX):
        for folder in base.glob(f"{_PREFIX}*"):
            if _abandoned(folder):
                shutil.rmtree(folder, ignore_errors=True)
        own = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
        held = contextlib.ExitStack()
        held.enter_context(_locked(own / _LOCK, fcntl.LOCK_EX | fcntl.LOCK_NB))
    with held:
        try:
            yield own
        finally:
            shutil.rmtree(own, ignore_errors=True)


def _abandoned(folder: Path) -> bool:
    if folder.is_symlink() or not folder.is_dir():
        return False
    try:
        with _locked(folder / _LOCK, fcntl.LOCK_EX | fcntl.LOCK_NB):
            return True
    except OSError:  # locked, or another user's
        return False


@contextlib.contextmanager
def _locked(path: Path, operation: int) -> Iterator[None]:
    # Closed on exec, so that the engine's processes do not keep the lock.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, operation)
        yield
    finally:
        os.close(descriptor)
