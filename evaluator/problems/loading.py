"""Problems read from folders, and findings of vetting written beside them.

A problem is two files: ``reference.py`` (KernelBench's form: ``Model``, ``get_inputs``, ``get_init_inputs``, sizes as
module globals) and ``problem.toml`` (see ``evaluator.problems.manifest``). Reading one never executes it.
``vetting.json`` beside them has the findings about it (see ``evaluator.problems.vetting``).
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from evaluator.errors import ProblemError
from evaluator.interpreter import DISTRIBUTION_ROOT
from evaluator.problems.created import is_created
from evaluator.problems.manifest import MissingNames, parse_problem
from evaluator.problems.problem import Problem
from evaluator.problems.requested import REQUESTED, is_requested
from evaluator.problems.vetting_record import Vetting

__all__ = ["load_problem", "load_problems", "save_vetting", "usual_folder"]

_ID: Final = re.compile(r"[a-z0-9][a-z0-9_]{0,99}")
_VETTING: Final = "vetting.json"
_USUAL: Final = "reference_models"


def usual_folder() -> Path:
    """Return the folder of problems where none is named: that of the working folder, or else of this distribution."""
    here = Path(_USUAL)
    return here if here.is_dir() else DISTRIBUTION_ROOT / _USUAL


def load_problems(root: Path, extra: Path | None = None) -> dict[str, Problem]:
    """Load every problem below ``root`` and below ``extra``, by id, in the order of their ids.

    ``extra`` need not exist, nor hold one. Raises ``ProblemError`` where ``root`` is no folder or holds no problem,
    where one of them is unusable, or where two have the same id.
    """
    if not root.is_dir():
        raise ProblemError(f"no folder of problems at {root}")
    problems = {path.parent.name: load_problem(path.parent) for path in _problem_files(root)}
    if not problems:
        raise ProblemError(f"no problem in {root}: a problem is a folder with reference.py and problem.toml")
    if extra is not None and extra.resolve() != root.resolve():
        for path in _problem_files(extra):
            if path.parent.name in problems:
                raise ProblemError(f"two problems are called {path.parent.name}: one in {root}, one in {extra}")
            problems[path.parent.name] = load_problem(path.parent)
    return dict(sorted(problems.items()))


def load_problem(folder: Path) -> Problem:
    """Read and validate the problem in ``folder``. Raises ``ProblemError`` naming the file and field."""
    if not _ID.fullmatch(folder.name):
        raise ProblemError(f"{folder}: a problem's folder is named in lower case letters, digits and _")
    if is_requested(folder.name) or is_created(folder.name):
        what = f"begin with {REQUESTED}" if is_requested(folder.name) else "have this form"
        raise ProblemError(f"{folder}: a problem's name cannot {what}: problems that come by the API have it")
    manifest_path = folder / "problem.toml"
    source = _read(folder / "reference.py")
    try:
        manifest = tomllib.loads(_read(manifest_path))
    except tomllib.TOMLDecodeError as error:
        raise ProblemError(f"{manifest_path}: {error}") from error
    try:
        problem = parse_problem(folder.name, source, manifest)
    except MissingNames as error:
        raise ProblemError(f"{folder / 'reference.py'}: {error}") from error
    except ProblemError as error:
        raise ProblemError(f"{manifest_path}: {error}") from error
    return replace(problem, vettings=_load_vettings(folder / _VETTING))


def save_vetting(folder: Path, vetting: Vetting) -> Path:
    """Write ``vetting`` beside the problem in ``folder``, where ``load_problem`` finds it. Raises ``OSError``.

    Findings about the same version at other precisions, on other devices or at other sizes stay.
    """
    path = folder / _VETTING
    try:
        known = _load_vettings(path)
    except ProblemError:
        known = ()  # it says to write it anew
    kept = [each for each in known if each.version == vetting.version and each.where != vetting.where]
    content = [each.to_dict() for each in sorted([*kept, vetting], key=lambda each: each.where)]
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return path


def _load_vettings(path: Path) -> tuple[Vetting, ...]:
    if not path.exists():
        return ()
    try:
        content = json.loads(_read(path))
        if not isinstance(content, list) or not content:
            raise TypeError("a list of vettings is expected")
        return tuple(Vetting.from_dict(each) for each in content)
    except (KeyError, TypeError, ValueError) as error:
        advice = "remove it, or write it anew with kerneljudge problems check --write"
        raise ProblemError(f"{path}: {type(error).__name__}: {error}; {advice}") from error


def _problem_files(root: Path) -> Iterator[Path]:
    yield from sorted(root.glob("*/problem.toml"))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ProblemError(f"{path}: {error}") from error
