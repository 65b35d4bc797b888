"""The fields of a problem beside its reference: those of ``problem.toml``, read as tables and checked."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping
from math import isfinite
from typing import Any, Final

from evaluator.config import LOWER_PRECISIONS, PRECISIONS, checked_limits
from evaluator.errors import ProblemError
from evaluator.problems.module_constants import constants, integers
from evaluator.problems.problem import (
    GRADIENT_POLICIES,
    INPUT_DOMAINS,
    POOLED,
    WHOLE_BELOW,
    KernelBenchIdentity,
    Problem,
    Size,
    Tolerance,
)
from evaluator.problems.shapes import MOST_VARIED, NEIGHBOURS, SHAPE_USES, Shape, Varied, neighbours
from kerneljudge.terms.rules import Rules

__all__ = ["FIELDS", "MAX_SHAPES", "MissingNames", "parse_problem"]

_REQUIRED_NAMES: Final = ("Model", "get_inputs", "get_init_inputs")
FIELDS: Final = frozenset(
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
        "shapes",
        "held_out_salt",
        "neighbours",
        "rules",
    }
)
_REFERENCE: Final = ("row_independent", "whole_inputs", "pooled", "tf32")
_MOST_WHOLE: Final = 64
_SIZE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_SHAPE_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_]{0,39}")
MAX_SHAPES: Final = 16
_SALT_CHARACTERS: Final = 16


class MissingNames(ProblemError):
    """The reference does not define all names that it needs."""


def parse_problem(problem_id: str, source: str, manifest: Mapping[str, Any]) -> Problem:
    """Return the problem of a reference's ``source`` and the tables of a ``problem.toml``. Nothing is executed.

    Raises ``ProblemError`` naming the field, and ``MissingNames`` where ``source`` lacks a name.
    """
    module = _parse(source)
    problem = _parse_manifest(problem_id, source, module, manifest)
    # Once for all sizes and shapes: a source may be long, and clients send it.
    known = constants(module)
    for size, values in problem.sizes.items():
        for each in (values, *(shape.values for shape in problem.shapes_of(size).values())):
            unknown = sorted(set(each) - known)
            if unknown:
                raise ProblemError(f"problem {problem_id} has no global assignment of {', '.join(unknown)}")
    defined = _defined_names(module)
    missing = [name for name in _REQUIRED_NAMES if name not in defined]
    if missing:
        raise MissingNames(f"does not define {', '.join(missing)}")
    return problem


def _parse(source: str) -> ast.Module:
    try:
        return ast.parse(source)
    except SyntaxError as error:
        raise ProblemError(f"reference.py does not parse: {error}") from error


def _defined_names(module: ast.Module) -> set[str]:
    return {node.name for node in module.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}


def _parse_manifest(problem_id: str, source: str, module: ast.Module, manifest: Mapping[str, Any]) -> Problem:
    _refuse_unknown(manifest, FIELDS)
    sizes, reference = _sizes(manifest.get("sizes")), _table(manifest, "reference", _REFERENCE)
    whole_inputs, pooled = _slices(reference)
    return Problem(
        id=problem_id,
        title=_text(manifest, "title"),
        description=_text(manifest, "description"),
        source=source,
        sizes=sizes,
        dtype=_choice(manifest, "dtype", PRECISIONS, default="float32"),
        tolerances=_tolerances(_table(manifest, "tolerance")),
        gradient_policy=_choice(
            _table(manifest, "gradients", ["policy"]), "policy", GRADIENT_POLICIES, default="check"
        ),
        input_domain=_choice(_table(manifest, "inputs", ["domain"]), "domain", INPUT_DOMAINS, default="real"),
        row_independent=_flag(reference, "row_independent"),
        whole_inputs=whole_inputs,
        pooled=pooled,
        tf32=_flag(reference, "tf32", usual=True),
        tags=_tags(manifest.get("tags", [])),
        kernelbench=_kernelbench(manifest.get("kernelbench")),
        baselines=_lower_precisions(_table(manifest, "baselines")),
        limits=_limits(_table(manifest, "limits")),
        shapes=_shapes(_table(manifest, "shapes"), _table(manifest, "neighbours"), sizes, integers(module)),
        held_out_salt=_held_out_salt(manifest),
        rules=_rules(_table(manifest, "rules")),
    )


def _shapes(
    table: Mapping[str, Any], around: Mapping[str, Any], sizes: Mapping[str, Size], published: Mapping[str, int]
) -> dict[str, dict[str, Shape]]:
    """Return the shapes by size: those that are written out, then those that are generated."""
    if not table and not around:
        return {}
    found: dict[str, dict[str, Shape]] = {size: {} for size in sizes}
    _refuse_unknown(table, sizes, "[shapes]: ")
    for size in table:
        written = _table(table, size)
        _refuse_many(size, len(written))
        for name, entry in written.items():
            found[size][name] = _shape(entry, f"shapes.{size}.{name}", name)
    if around:
        for size, generated in _neighbours(around, sizes, published).items():
            taken = sorted(generated.keys() & found[size].keys())
            if taken:
                raise ProblemError(f"shapes.{size}.{taken[0]} has the name of a generated neighbour")
            found[size].update(generated)
    for size, shapes in found.items():
        _refuse_many(size, len(shapes))
        _refuse_equal(size, shapes, {**published, **sizes[size]})
    return {size: shapes for size, shapes in found.items() if shapes}


def _refuse_many(size: str, count: int) -> None:
    if count > MAX_SHAPES:
        raise ProblemError(f"size {size} has {count:,} shapes; {MAX_SHAPES} are the most")


def _refuse_equal(size: str, shapes: Mapping[str, Shape], of_size: Size) -> None:
    """Raises ``ProblemError`` for a shape that is the size itself, or another shape of it."""
    varied = sorted({name for shape in shapes.values() for name in shape.values})
    itself = tuple(of_size.get(name) for name in varied)
    seen: dict[tuple[float | None, ...], str] = {}
    for name, shape in shapes.items():
        values = tuple(shape.values.get(each, before) for each, before in zip(varied, itself, strict=True))
        if values == itself:
            raise ProblemError(f"shapes.{size}.{name} is the size itself")
        if values in seen:
            raise ProblemError(f"shapes.{size}.{name} is the same as shapes.{size}.{seen[values]}")
        seen[values] = name


def _held_out_salt(manifest: Mapping[str, Any]) -> str:
    """Return the salt, which held-out shapes that are written out need."""
    salt = manifest.get("held_out_salt", "")
    if not isinstance(salt, str) or (salt and len(salt) < _SALT_CHARACTERS):
        raise ProblemError(f"held_out_salt must be a random text of at least {_SALT_CHARACTERS} characters")
    written = [entry for shapes in manifest.get("shapes", {}).values() for entry in shapes.values()]
    if not salt and any(entry.get("use") == "held_out" for entry in written):
        raise ProblemError(
            "a shape that is written out and held_out needs held_out_salt, a random text of at least "
            f"{_SALT_CHARACTERS} characters: the version is public, and a search could find the shape by it"
        )
    return _storable(salt, "held_out_salt")


def _shape(entry: object, where: str, name: str) -> Shape:
    if not _SHAPE_NAME.fullmatch(name):
        raise ProblemError(f"{where}: a shape is named in lower case letters, digits and _")
    if not isinstance(entry, dict):
        raise ProblemError(f"[{where}] must be a table with use and values")
    _refuse_unknown(entry, ["use", "values"], f"[{where}]: ")
    values = entry.get("values")
    if not isinstance(values, dict) or not values:
        raise ProblemError(f"{where}.values must be a table of the reference's globals that differ from the size")
    return Shape(_choice(entry, "use", SHAPE_USES, default="checked"), _numbers(values, f"{where}.values"))


def _neighbours(
    table: Mapping[str, Any], sizes: Mapping[str, Size], published: Mapping[str, int]
) -> dict[str, dict[str, Shape]]:
    _refuse_unknown(table, ["use", "kinds", "sizes", "vary"], "[neighbours]: ")
    use = _choice(table, "use", SHAPE_USES, default="held_out")
    kinds = _some_of(table, "kinds", NEIGHBOURS, "[neighbours]")
    vary = _table(table, "vary")
    if not vary:
        raise ProblemError("[neighbours.vary] must name a global of the reference that may vary")
    varied = {name: _varied(entry, name) for name, entry in vary.items()}
    found = {}
    for size in _some_of(table, "sizes", tuple(sizes), "[neighbours]"):
        values = {name: sizes[size].get(name, published.get(name)) for name in varied}
        for name, value in values.items():
            if not isinstance(value, int):
                raise ProblemError(f"neighbours.vary.{name} must be a global whose value is a whole number")
        for name, value in values.items():
            if value is not None and value < varied[name].least:
                raise ProblemError(f"neighbours.vary.{name}: its least is above its value at size {size}")
            if value is not None and value > MOST_VARIED:
                raise ProblemError(f"neighbours.vary.{name}: its value at size {size} is above {MOST_VARIED:,}")
        whole = {name: int(value) for name, value in values.items() if value is not None}
        found[size] = neighbours(whole, varied, use, kinds)
        if not found[size]:
            raise ProblemError(f"[neighbours] generates no shape at size {size}: give sizes without it, or other kinds")
    return found


def _varied(entry: object, name: str) -> Varied:
    try:
        if not isinstance(entry, dict) or not all(type(value) is int for value in entry.values()):
            raise ValueError("a table of whole numbers is expected, such as { least = 1 }")
        _refuse_unknown(entry, ["least", "multiple_of"])
        return Varied(**{"least": entry.get("multiple_of", 1), **entry})
    except ValueError as error:
        raise ProblemError(f"neighbours.vary.{name}: {error}") from error


def _some_of(table: Mapping[str, Any], name: str, choices: tuple[str, ...], where: str) -> tuple[str, ...]:
    value = table.get(name, list(choices))
    if not isinstance(value, list) or not value or not _are_texts(value) or not set(value) <= set(choices):
        raise ProblemError(f"{where}: {name} must be a list of some of {', '.join(choices)}")
    return tuple(value)


def _numbers(values: Mapping[str, Any], where: str) -> dict[str, int | float]:
    """Return ``values`` in a form that every database gives back as it is."""
    for name, number in values.items():
        if isinstance(number, int) and not isinstance(number, bool):
            # The number itself is left out: Python writes none of thousands of digits.
            if abs(number) >= WHOLE_BELOW:
                raise ProblemError(f"{where}.{name}: a whole number must be below {WHOLE_BELOW:,}")
        elif not isinstance(number, float) or not isfinite(number):
            raise ProblemError(f"{where}.{name} must be a finite number, not {number!r}")
    return {name: number + 0 for name, number in values.items()}  # PostgreSQL has no minus zero


def _storable(text: str, where: str) -> str:
    """Return ``text``. Raises ``ProblemError`` where a database would give back another one."""
    if "\0" in text or (not text.isascii() and any("\ud800" <= each <= "\udfff" for each in text)):
        raise ProblemError(f"{where} must be Unicode text without NUL")
    return text


def _are_texts(values: Collection[object]) -> bool:
    """Whether each is a text; of other values Python may be unable to make a set."""
    return all(isinstance(value, str) for value in values)


def _limits(table: Mapping[str, Any]) -> dict[str, float]:
    try:
        return checked_limits(table)
    except ValueError as error:
        raise ProblemError(f"[limits]: {error}") from error


def _rules(table: Mapping[str, Any]) -> Rules:
    try:
        return Rules.from_dict(table)
    except ValueError as error:
        raise ProblemError(f"[rules]: {error}") from error


def _text(table: Mapping[str, Any], name: str) -> str:
    value = table.get(name)
    if not isinstance(value, str) or not value.strip():
        raise ProblemError(f"{name} must be a non-empty text")
    return _storable(value.strip(), name)


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


def _flag(table: Mapping[str, Any], name: str, *, usual: bool = False) -> bool:
    value = table.get(name, usual)
    if not isinstance(value, bool):
        raise ProblemError(f"{name} must be true or false, not {value!r}")
    return value


def _slices(reference: Mapping[str, Any]) -> tuple[tuple[int, ...], str]:
    """Return the arguments that each slice of rows needs as a whole, and how outputs pool the slices' own."""
    whole = reference.get("whole_inputs", [])
    if not isinstance(whole, list | tuple) or any(type(place) is not int for place in whole):
        raise ProblemError("reference.whole_inputs must be a list of numbers of arguments")
    if any(not 0 <= place < _MOST_WHOLE for place in whole):
        raise ProblemError(f"reference.whole_inputs must be numbers of arguments, from 0 to {_MOST_WHOLE - 1}")
    pooled = _choice(reference, "pooled", POOLED, default="") if reference.get("pooled", "") != "" else ""
    if _flag(reference, "row_independent") and (whole or pooled):
        raise ProblemError("reference.row_independent: rows are not, where slices have whole inputs or are pooled")
    return tuple(sorted(set(whole))), pooled


def _sizes(value: object) -> dict[str, Size]:
    if not isinstance(value, dict) or "full" not in value:
        raise ProblemError("[sizes] must hold at least [sizes.full]")
    sizes: dict[str, Size] = {}
    for size, overrides in value.items():
        if not isinstance(overrides, dict):
            raise ProblemError(f"[sizes.{size}] must be a table of the reference's globals")
        if not _SIZE_NAME.fullmatch(size):
            raise ProblemError(f"sizes.{size}: a size is named in letters, digits, _, . and -")
        sizes[size] = _numbers(overrides, f"sizes.{size}")
    return sizes


def _tolerances(table: Mapping[str, Any]) -> dict[str, Tolerance]:
    tolerances = {}
    for precision, entry in table.items():
        if precision not in PRECISIONS:
            raise ProblemError(f"tolerance.{precision}: precision must be one of {', '.join(PRECISIONS)}")
        try:
            tolerance = Tolerance(atol=float(entry["atol"]), rtol=float(entry["rtol"]) + 0)
            _refuse_unknown(entry, ["atol", "rtol"], f"tolerance.{precision}: ")
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ProblemError(f"tolerance.{precision} must give the numbers atol and rtol") from error
        if not (0 < tolerance.atol < 1 and 0 <= tolerance.rtol < 1):
            raise ProblemError(f"tolerance.{precision} must lie between 0 and 1")
        tolerances[precision] = tolerance
    return tolerances


def _tags(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not _are_texts(value):
        raise ProblemError("tags must be a list of texts")
    return tuple(_storable(tag, "tags") for tag in value)


def _lower_precisions(table: Mapping[str, Any]) -> tuple[str, ...]:
    value = table.get("precisions", [])
    usual = isinstance(value, list) and _are_texts(value) and set(value) <= set(LOWER_PRECISIONS)
    if set(table) - {"precisions"} or not usual:
        raise ProblemError(f"[baselines] may give precisions, a list of {', '.join(LOWER_PRECISIONS)}")
    return tuple(value)


def _kernelbench(value: object) -> KernelBenchIdentity | None:
    if value is None:
        return None
    if not isinstance(value, dict) or set(value) != {"level", "problem_id", "name"}:
        raise ProblemError("[kernelbench] must give level, problem_id and name")
    try:
        level, number = int(value["level"]), int(value["problem_id"])
    except (TypeError, ValueError, OverflowError) as error:
        raise ProblemError("[kernelbench]: level and problem_id must be whole numbers") from error
    return KernelBenchIdentity(level=level, problem_id=number, name=str(value["name"]))
