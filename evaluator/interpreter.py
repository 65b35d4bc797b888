"""The folders of this project's packages, and the start of its Python processes without the working folder. Torch-free.

``python -m`` puts the working folder first on the path of modules. That may be a folder of candidates, and a
``json.py`` in it would then run outside of the sandbox, in the judge as elsewhere.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kerneljudge import terms

__all__ = ["DISTRIBUTION_ROOT", "own_packages", "python_command", "python_environment"]

DISTRIBUTION_ROOT: Final = Path(__file__).resolve().parent.parent
"""The folder that the packages of the service lie in: a checkout, or a folder of ``kerneljudge_server``."""

_SERVER: Final = "kerneljudge_server"
_BEGAN_IN: Final = Path.cwd()


def own_packages(root: Path = DISTRIBUTION_ROOT) -> tuple[Path, ...]:
    """The folders with code of ours, sorted: no confined process may see them. ``root`` is as ``DISTRIBUTION_ROOT``.

    In a checkout they are its packages. Where the project is installed, the whole package ``kerneljudge_server`` is
    ours, with all that lies in it. In both cases the client is, wherever it was imported from. Raises ``RuntimeError``
    where ``root`` is neither: a guess would show code of ours to candidates.
    """
    if (root / "pyproject.toml").is_file():
        ours = {path.parent for path in root.glob("*/__init__.py")}
        known = root / __package__ in ours
    else:
        ours = {root.parent}
        known = root.parent.name == _SERVER and (root / __package__ / "__init__.py").is_file()
    if not known:
        raise RuntimeError(f"{root} is neither a checkout of kerneljudge nor a folder of an installed {_SERVER}")
    return tuple(sorted(ours | {Path(path).resolve().parent for path in terms.__path__}))


def python_command(*arguments: str) -> list[str]:
    """Return the command that runs this Python with ``arguments``, without the working folder on its path.

    It is to be started with ``python_environment``.
    """
    return [sys.executable, "-P", *arguments]


def python_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return ``environment`` with this process's path of modules, without its implicit folders.

    Left out are the working folder, the one that this process began in, and that of the program that imported us. So
    are all relative ones, which stand for the present folder of a process. The root of this distribution is on the path
    in each case, so that a checkout that is not installed works, too. ``PYTHONSAFEPATH`` gives the children of these
    processes the same rule.
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
    """The folder that ``python program.py`` has put first."""
    main = sys.modules.get("__main__")
    program = getattr(main, "__file__", None)
    is_module = getattr(main, "__spec__", None) is not None
    return set() if program is None or is_module else {Path(program).absolute().parent}
