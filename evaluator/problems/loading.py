"""Problems read from folders, and findings of vetting written beside them.

A problem is two files: ``reference.py`` (KernelBench's form: ``Model``, ``get_inputs``, ``get_init_inputs``, sizes as
module globals) and ``problem.toml``. Reading one never executes it. ``vetting.json`` beside them has the findings about
it (see ``evaluator.problems.vetting``).
"""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from evaluator.config import LOWER_PRECISIONS, PRECISIONS, checked_limits
from evaluator.errors import ProblemError
from evaluator.problems.problem import (
    GRADIENT_POLICIES,
    INPUT_DOMAINS,
    KernelBenchIdentity,
    Problem,
    Size,
    Tolerance,
)
from evaluator.problems.vetting_record import Vetting

__all__ = ["load_problem", "load_problems", "save_vetting"]

_ID: Final = re.compile(r"[a-z0-9][a-z0-9_]{0,99}")
_VETTING: Final = "vetting.json"
_REQUIRED_NAMES: Final = ("Model", "get_inputs", "get_init_inputs")
_FIELDS: Final = frozenset(
    {
        "title",
        "description",
        "dtype",
        "tags",
        "sizes",
        "tolerance",
        "gradients",
        "reference",
        "inputs",
        "kernelbench",
        "baselines",
        "limits",
    }
)


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
    manifest_path = folder / "problem.toml"
    source = _read(folder / "reference.py")
    try:
        manifest = tomllib.loads(_read(manifest_path))
    except tomllib.TOMLDecodeError as error:
        raise ProblemError(f"{manifest_path}: {error}") from error
    try:
        problem = _parse_manifest(folder.name, source, manifest)
        for size in problem.sizes:
            problem.sized_source(size)
    except ProblemError as error:
        raise ProblemError(f"{manifest_path}: {error}") from error
    missing = [name for name in _REQUIRED_NAMES if name not in _defined_names(_parse(source))]
    if missing:
        raise ProblemError(f"{folder / 'reference.py'}: does not define {', '.join(missing)}")
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


def _parse(source: str) -> ast.Module:
    try:
        return ast.parse(source)
    except SyntaxError as error:
        raise ProblemError(f"reference.py does not parse: {error}") from error


def _defined_names(module: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in module.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
    return names


def _parse_manifest(problem_id: str, source: str, manifest: Mapping[str, Any]) -> Problem:
    _refuse_unknown(manifest, _FIELDS)
    return Problem(
        id=problem_id,
        title=_text(manifest, "title"),
        description=_text(manifest, "description"),
        source=source,
        sizes=_sizes(manifest.get("sizes")),
        dtype=_choice(manifest, "dtype", PRECISIONS, default="float32"),
        tolerances=_tolerances(_table(manifest, "tolerance")),
        gradient_policy=_choice(
            _table(manifest, "gradients", ["policy"]), "policy", GRADIENT_POLICIES, default="check"
        ),
        input_domain=_choice(_table(manifest, "inputs", ["domain"]), "domain", INPUT_DOMAINS, default="real"),
        row_independent=_flag(_table(manifest, "reference", ["row_independent"]), "row_independent"),
        tags=_tags(manifest.get("tags", [])),
        kernelbench=_kernelbench(manifest.get("kernelbench")),
        baselines=_lower_precisions(_table(manifest, "baselines")),
        limits=_limits(_table(manifest, "limits")),
    )


def _limits(table: Mapping[str, Any]) -> dict[str, float]:
    try:
        return checked_limits(table)
    except ValueError as error:
        raise ProblemError(f"[limits]: {error}") from error


def _text(table: Mapping[str, Any], name: str) -> str:
    value = table.get(name)
    if not isinstance(value, str) or not value.strip():
        raise ProblemError(f"{name} must be a non-empty text")
    return value.strip()


def _table(manifest: Mapping[str, Any], name: str, known: Collection[str] | None = None) -> Mapping[str, Any]:
    """Return the table ``name``; with ``known``, it may have these fields alone."""
    value = manifest.get(name, {})
    if not isinstance(value, dict):
        raise ProblemError(f"[{name}] must be a table")
    if known is not None:
        _refuse_unknown(value, known, f"[{name}]: ")
    return value


def _refuse_unknown(table: Mapping[str, Any], known: Collection[str], where: str = "") -> None:
    """Raises ``ProblemError`` for a field that is not ``known``: a typing error would leave the default."""
    unknown = sorted(set(table) - set(known))
    if unknown:
        raise ProblemError(f"{where}unknown field {unknown[0]!r}; known are {', '.join(sorted(known))}")


def _choice(table: Mapping[str, Any], name: str, choices: tuple[str, ...], *, default: str) -> str:
    value = table.get(name, default)
    if value not in choices:
        raise ProblemError(f"{name} must be one of {', '.join(choices)}, not {value!r}")
    return str(value)


def _flag(table: Mapping[str, Any], name: str) -> bool:
    value = table.get(name, False)
    if not isinstance(value, bool):
        raise ProblemError(f"{name} must be true or false, not {value!r}")
    return value


def _sizes(value: object) -> dict[str, Size]:
    if not isinstance(value, dict) or "full" not in value:
        raise ProblemError("[sizes] must hold at least [sizes.full]")
    for size, overrides in value.items():
        if not isinstance(overrides, dict):
            raise ProblemError(f"[sizes.{size}] must be a table of the reference's globals")
        for name, number in overrides.items():
            if not isinstance(number, int | float) or isinstance(number, bool):
                raise ProblemError(f"sizes.{size}.{name} must be a number, not {number!r}")
    return value


def _tolerances(table: Mapping[str, Any]) -> dict[str, Tolerance]:
    tolerances = {}
    for precision, entry in table.items():
        if precision not in PRECISIONS:
            raise ProblemError(f"tolerance.{precision}: precision must be one of {', '.join(PRECISIONS)}")
        try:
            tolerance = Tolerance(atol=float(entry["atol"]), rtol=float(entry["rtol"]))
            _refuse_unknown(entry, ["atol", "rtol"], f"tolerance.{precision}: ")
        except (KeyError, TypeError, ValueError) as error:
            raise ProblemError(f"tolerance.{precision} must give the numbers atol and rtol") from error
        if not (0 < tolerance.atol < 1 and 0 <= tolerance.rtol < 1):
            raise ProblemError(f"tolerance.{precision} must lie between 0 and 1")
        tolerances[precision] = tolerance
    return tolerances


def _tags(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(tag, str) for tag in value):
        raise ProblemError("tags must be a list of texts")
    return tuple(value)


def _lower_precisions(table: Mapping[str, Any]) -> tuple[str, ...]:
    value = table.get("precisions", [])
    if set(table) - {"precisions"} or not isinstance(value, list) or not set(value) <= set(LOWER_PRECISIONS):
        raise ProblemError(f"[baselines] may give precisions, a list of {', '.join(LOWER_PRECISIONS)}")
    return tuple(value)


def _kernelbench(value: object) -> KernelBenchIdentity | None:
    if value is None:
        return None
    if not isinstance(value, dict) or set(value) != {"level", "problem_id", "name"}:
        raise ProblemError("[kernelbench] must give level, problem_id and name")
    return KernelBenchIdentity(level=int(value["level"]), problem_id=int(value["problem_id"]), name=str(value["name"]))
