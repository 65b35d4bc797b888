"""Machines that lack something, for real, as far as the processes of a test can tell."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["without_libseccomp"]


def without_libseccomp(folder: Path) -> dict[str, str]:
    """The environment of a process that finds no libseccomp, nor do those that it starts."""
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(
        "import ctypes\n"
        "class Missing(ctypes.CDLL):\n"
        "    def __init__(self, name, *arguments, **keywords):\n"
        "        if name and 'seccomp' in str(name):\n"
        "            raise OSError(name)\n"
        "        super().__init__(name, *arguments, **keywords)\n"
        "ctypes.CDLL = Missing\n"
    )
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *(path for path in sys.path if path)])}
