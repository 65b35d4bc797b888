"""How each of our processes that runs Python is started: deaf to the working folder. Torch-free.

``python -m`` puts the working folder first on the path of modules. That may be a folder of candidates, and a
``json.py`` in it would then run outside of the sandbox, in the judge as elsewhere.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

__all__ = ["DISTRIBUTION_ROOT", "python_command", "python_environment"]

DISTRIBUTION_ROOT: Final = Path(__file__).resolve().parent.parent
"""The folder that the packages of this project lie in: a checkout, or where they are installed."""

_BEGAN_IN: Final = Path.cwd()


def python_command(*arguments: str) -> list[str]:
    """The arguments that have this Python run with ``arguments``, and without the working folder on its path.

    To be started with ``python_environment``.
    """
    return [sys.executable, "-P", *arguments]


def python_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """``environment`` with the path of modules of this process, but for folders that nobody has named.

    Left out are the working folder, the one that this process began in, that of the program that imported us, and
    all relative ones, which stand for whatever folder a process works in. The root of this distribution is on the
    path in each case, so that a checkout that is not installed works, too. ``PYTHONSAFEPATH`` keeps what these
    processes start themselves to the same.
    """
    root = str(DISTRIBUTION_ROOT)
    unsafe = {_BEGAN_IN, Path.cwd()} | _folder_of_the_program()
    kept = [path for path in sys.path if Path(path).is_absolute() and (_is_root(path) or Path(path) not in unsafe)]
    if not any(map(_is_root, kept)):
        kept.insert(0, root)
    return {**environment, "PYTHONPATH": os.pathsep.join(kept), "PYTHONSAFEPATH": "1"}


def _is_root(path: str) -> bool:
    return Path(path).resolve() == DISTRIBUTION_ROOT


def _folder_of_the_program() -> set[Path]:
    """What ``python program.py`` has put first."""
    main = sys.modules.get("__main__")
    program = getattr(main, "__file__", None)
    is_module = getattr(main, "__spec__", None) is not None
    return set() if program is None or is_module else {Path(program).absolute().parent}
