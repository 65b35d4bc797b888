"""The folders of this machine: problems, imported problems, and the cache."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from evaluator.problems.loading import usual_folder

__all__ = ["cache_dir", "extra_problems_folder", "folder_of", "problems_folder"]

_DEFAULT_DATA: Final = ".kerneljudge"


def problems_folder(given: Path | None) -> Path:
    """Return the folder of problems: as given, ``KERNELJUDGE_PROBLEMS_DIR``, here, or those of the distribution."""
    if given is not None:
        return given
    configured = os.environ.get("KERNELJUDGE_PROBLEMS_DIR")
    return Path(configured) if configured else usual_folder()


def extra_problems_folder() -> Path:
    """Return the folder of imported problems: ``KERNELJUDGE_EXTRA_PROBLEMS_DIR``, or one in the data folder."""
    configured = os.environ.get("KERNELJUDGE_EXTRA_PROBLEMS_DIR")
    return (Path(configured) if configured else _data_folder() / "problems").expanduser().absolute()


def folder_of(problem_id: str, given: Path | None) -> Path:
    """Return the folder of one of ``known_problems(given)``."""
    own = problems_folder(given) / problem_id
    return own if given is not None or own.is_dir() else extra_problems_folder() / problem_id


def cache_dir() -> Path:
    """Return the folder in which evaluations on this machine keep their builds."""
    return _data_folder().expanduser().absolute() / "cache"


def _data_folder() -> Path:
    return Path(os.environ.get("KERNELJUDGE_DATA_DIR") or _DEFAULT_DATA)
