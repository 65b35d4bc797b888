"""The files that Triton, inductor and CUDA's driver have compiled in a runner's working folder, as one archive.

A candidate can write anything there. So an archive is made of plain files alone, once all of its processes are dead.
Nothing but another runner of the same candidate reads it. Torch-free.
"""

from __future__ import annotations

import contextlib
import json
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
"""The variable that gives each compiler its folder, and the name of that folder in the working folder."""
_TRITON_GROUP: Final = "triton/*/__grp__*.json"
_MAX_GROUP_BYTES: Final = 2**16
_MAX_BYTES: Final = 64 * 2**20
_MAX_ENTRIES: Final = 2**13
_MAX_LEVELS: Final = 16


class _TooMuch(Exception):
    """More than an archive may hold."""


def pack(working_folder: int, archive: Path) -> bool:
    """Write the folders of ``FOLDERS`` below the open folder ``working_folder`` to ``archive``.

    Returns whether there were files to keep, and no more than an archive may hold. Links, pipes, and everything else
    that is no plain file, are left out. The same files make the same bytes.
    """
    tar: tarfile.TarFile | None = None
    budget = _Budget()
    try:
        with contextlib.ExitStack() as stack:
            for name in FOLDERS.values():
                for path, descriptor in _files(working_folder, name, _MAX_LEVELS, budget):
                    if tar is None:
                        tar = stack.enter_context(tarfile.open(archive, "w"))
                    _add(tar, path, descriptor, budget)
    except (_TooMuch, OSError, tarfile.TarError):
        archive.unlink(missing_ok=True)
        return False
    return tar is not None


def unpack(descriptor: int, working_folder: Path) -> None:
    """Write the files of an archive into ``working_folder``; none, where that fails.

    Reads from the present position of ``descriptor``, and closes it.
    """
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
                if path.match(_TRITON_GROUP) and member.size <= _MAX_GROUP_BYTES:
                    _relocate(path)
    except (OSError, tarfile.TarError):
        # The folder may be full. Half of a compiled file would be worse than none.
        for name in FOLDERS.values():
            shutil.rmtree(working_folder / name, ignore_errors=True)


def _relocate(group: Path) -> None:
    """Change the paths in a group of Triton's to the files beside it.

    A group names its files by whole paths. With another working folder, as without a root of its own, these do not
    exist: then Triton would compile them once more. A file that is no such group stays as it is.
    """
    try:
        named = json.loads(group.read_bytes())["child_paths"]
        moved = {name: str(group.parent / Path(path).name) for name, path in named.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return
    group.write_text(json.dumps({"child_paths": moved}))


class _Budget:
    def __init__(self) -> None:
        self._bytes = 0
        self._entries = 0

    def take_bytes(self, count: int) -> None:
        self._bytes += count
        if self._bytes > _MAX_BYTES:
            raise _TooMuch

    def take_entry(self) -> None:
        self._entries += 1
        if self._entries > _MAX_ENTRIES:
            raise _TooMuch


def _add(tar: tarfile.TarFile, path: str, descriptor: int, budget: _Budget) -> None:
    found = os.fstat(descriptor)
    budget.take_bytes(found.st_size)
    member = tarfile.TarInfo(path)
    member.size = found.st_size
    member.mode = 0o755 if found.st_mode & stat.S_IXUSR else 0o644
    with os.fdopen(os.dup(descriptor), "rb") as content:
        tar.addfile(member, content)


def _files(parent: int, name: str, levels: int, budget: _Budget) -> Iterator[tuple[str, int]]:
    """Yield path and open descriptor of each plain file below the folder ``name`` of ``parent``; no link."""
    try:
        folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    except OSError:
        return  # it is not there, is no folder, or must not be read
    try:
        if levels == 0:
            raise _TooMuch
        found: list[tuple[str, bool]] = []
        with os.scandir(folder) as entries:
            for each in entries:
                budget.take_entry()
                found.append((each.name, each.is_dir(follow_symlinks=False)))
        for entry, is_folder in sorted(found):
            if is_folder:
                for path, descriptor in _files(folder, entry, levels - 1, budget):
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
