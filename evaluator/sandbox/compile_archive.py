"""The files that Triton, inductor and CUDA's driver have compiled in a runner's working folder, as one archive.

A candidate can write anything there, so that an archive is made once all of its processes are dead, of plain files
alone, and is read by nothing but another runner of the same candidate. Torch-free.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["FOLDERS", "pack", "unpack"]

FOLDERS: Final = {
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "CUDA_CACHE_PATH": "cuda",
}
"""The variable by which each compiler is told its folder, and the name of that folder in the working folder."""
_MOST_BYTES: Final = 128 * 2**20
_MOST_FILES: Final = 2**13
_MOST_LEVELS: Final = 16


class _TooMuch(Exception):
    """More than an archive may hold."""


def pack(working_folder: int, archive: Path) -> bool:
    """Write the folders of ``FOLDERS`` below the open folder ``working_folder`` to ``archive``; whether there was
    anything to keep, and no more than an archive may hold. Links, pipes, and all that is no plain file, are left out.
    Raises ``OSError``.
    """
    begun = False
    budget = _Budget()
    try:
        with contextlib.ExitStack() as stack:
            tar: tarfile.TarFile | None = None
            for name in FOLDERS.values():
                for path, descriptor in _files(working_folder, name, _MOST_LEVELS):
                    if tar is None:
                        begun = True
                        tar = stack.enter_context(tarfile.open(archive, "w"))
                    _add(tar, path, descriptor, budget)
    except (_TooMuch, OSError, tarfile.TarError):
        archive.unlink(missing_ok=True)
        return False
    return begun


def unpack(descriptor: int, working_folder: Path) -> None:
    """Write the files that ``pack`` kept into ``working_folder``; none, where the archive is damaged. Closes
    ``descriptor``."""
    try:
        with os.fdopen(descriptor, "rb") as file, tarfile.open(fileobj=file, mode="r:") as tar:
            for member in tar:
                content = tar.extractfile(member)
                if content is None:
                    continue
                path = working_folder / member.name
                path.parent.mkdir(parents=True, exist_ok=True)
                with content, path.open("wb") as target:
                    shutil.copyfileobj(content, target)
                path.chmod(member.mode)
    except (OSError, tarfile.TarError):
        # Half of a compiled file would be worse than none.
        for name in FOLDERS.values():
            shutil.rmtree(working_folder / name, ignore_errors=True)


class _Budget:
    def __init__(self) -> None:
        self._bytes = 0
        self._files = 0

    def take(self, size_bytes: int) -> None:
        self._bytes += size_bytes
        self._files += 1
        if self._bytes > _MOST_BYTES or self._files > _MOST_FILES:
            raise _TooMuch


def _add(tar: tarfile.TarFile, path: str, descriptor: int, budget: _Budget) -> None:
    found = os.fstat(descriptor)
    budget.take(found.st_size)
    member = tarfile.TarInfo(path)
    member.size, member.mtime = found.st_size, found.st_mtime
    member.mode = 0o755 if found.st_mode & stat.S_IXUSR else 0o644
    with os.fdopen(os.dup(descriptor), "rb") as content:
        tar.addfile(member, content)


def _files(parent: int, name: str, levels: int) -> Iterator[tuple[str, int]]:
    """The path and an open descriptor of each plain file below the folder ``name`` of ``parent``; no link."""
    try:
        folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    except OSError:
        return  # it is not there, is no folder, or must not be read
    try:
        if levels == 0:
            raise _TooMuch
        with os.scandir(folder) as entries:
            found = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
        for entry, is_folder in found:
            if is_folder:
                for path, descriptor in _files(folder, entry, levels - 1):
                    yield f"{name}/{path}", descriptor
            else:
                yield from _file(folder, name, entry)
    finally:
        os.close(folder)


def _file(folder: int, folder_name: str, name: str) -> Iterator[tuple[str, int]]:
    # Opening a pipe would wait for its other end.
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError:
        return
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            yield f"{folder_name}/{name}", descriptor
    finally:
        os.close(descriptor)
