"""Problems: a reference model with its sizes, tolerances and policies, read from a folder.

A problem is two files: ``reference.py`` (KernelBench's form: ``Model``, ``get_inputs``, ``get_init_inputs``, sizes as
module globals) and ``problem.toml``. Reading one never executes it. ``vetting.json`` beside them has the findings about
it (see ``evaluator.problems.vetting``).
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from evaluator.config import BASELINES, LOWER_PRECISIONS, PRECISIONS, EvalConfig, Limits, checked_limits
from evaluator.errors import ProblemError
from evaluator.problems.module_constants import rewritten
from evaluator.problems.vetting_labels import Label
from evaluator.problems.vetting_record import Vetting, refusal_of

__all__ = [
    "GRADIENT_POLICIES",
    "INPUT_DOMAINS",
    "KernelBenchIdentity",
    "Problem",
    "Tolerance",
    "load_problem",
    "load_problems",
    "save_vetting",
]

GRADIENT_POLICIES: Final = ("check", "require", "none")
"""``check``: verify gradients if the candidate has them. ``require``: missing ones fail. ``none``: skip."""

INPUT_DOMAINS: Final = ("real", "as_written")
"""``real``: any finite value is a fair input. ``as_written``: only the inputs of ``get_inputs``."""

_ID: Final = re.compile(r"[a-z0-9][a-z0-9_]{0,99}")
_DEFAULT_TOLERANCE: Final = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 1e-2}
_HALF: Final = re.compile(r"\b(?:bfloat16|float16)\b|\.half\b")
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

Size = Mapping[str, int | float]


@dataclass(frozen=True)
class Tolerance:
    """The limit of an element's error: at most ``atol * scale + rtol * |expected|``.

    ``scale`` is the root mean square of the expected tensor or, where that is less, a magnitude that most of its
    elements have. So neither zeros nor a constant can hide below an absolute tolerance.
    """

    atol: float
    rtol: float


@dataclass(frozen=True)
class KernelBenchIdentity:
    """The identity of a KernelBench problem: ``name`` as in its file name, without ``.py``."""

    level: int
    problem_id: int
    name: str


@dataclass(frozen=True)
class Problem:
    """A reference with its sizes, tolerances and policy. Torch-free; the judge executes ``source``.

    ``row_independent``: slices along the first dimension of every tensor input and output do not influence each other.
    So the judge may compute the reference slice by slice. ``baselines``: lower precisions in which the reference may be
    measured, besides eager and compiled. ``vettings``: findings about some versions of it, at some precisions; they are
    no part of its definition.
    """

    id: str
    title: str
    description: str
    source: str
    sizes: Mapping[str, Size]
    dtype: str = "float32"
    tolerances: Mapping[str, Tolerance] = field(default_factory=dict)
    gradient_policy: str = "check"
    input_domain: str = "real"
    row_independent: bool = False
    tags: tuple[str, ...] = ()
    kernelbench: KernelBenchIdentity | None = None
    baselines: tuple[str, ...] = ()
    limits: Mapping[str, float] = field(default_factory=dict)
    """Fields of ``Limits`` with values of their own for this problem."""
    vettings: tuple[Vetting, ...] = field(default=(), compare=False)

    @cached_property
    def version(self) -> str:
        """The first 16 hex digits of the SHA-256 over everything that can change a verdict."""
        content = self.to_dict()
        for cosmetic in ("title", "description", "tags", "kernelbench", "baselines"):
            del content[cosmetic]
        if not content["limits"]:
            del content["limits"]  # versions are older than these
        canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]

    def refuses_baseline(self, config: EvalConfig) -> str | None:
        """Return the reason why a baseline is not possible for this problem, in words; ``None`` where it is."""
        if config.baseline not in LOWER_PRECISIONS:
            return None
        if config.baseline not in self.baselines:
            allowed = ", ".join([*(name for name in BASELINES if name not in LOWER_PRECISIONS), *self.baselines])
            return f"problem {self.id} has no baseline {config.baseline}; it has {allowed}"
        if config.precision != "float32":
            return f"baseline {config.baseline} is for precision float32, not {config.precision}"
        if config.baseline == "tf32" and config.device_kind != "cuda":
            return "baseline tf32 is for CUDA devices: nothing else computes in TF32"
        return None

    @property
    def stale(self) -> bool:
        """Whether it was vetted, but has changed since."""
        return bool(self.vettings) and not any(vetting.version == self.version for vetting in self.vettings)

    @property
    def labels(self) -> tuple[Label, ...] | None:
        """The findings of vetting about this version at its own precision; ``None`` where it was not vetted."""
        vettings = self.vettings_at(self.dtype)
        found = {label for vetting in vettings for label in vetting.labels}
        return tuple(label for label in Label if label in found) if vettings else None

    @property
    def refusal(self) -> str | None:
        """Why this version has neither speedups nor a leaderboard at its own precision; ``None`` where it has."""
        return self.refusal_at(self.dtype)

    def vettings_at(self, precision: str) -> tuple[Vetting, ...]:
        """Return the findings about this version at ``precision``, on any device and at any size."""
        return tuple(each for each in self.vettings if (each.version, each.precision) == (self.version, precision))

    def refusal_at(self, precision: str) -> str | None:
        """Why this version has neither speedups nor a leaderboard at ``precision``; ``None`` where it has."""
        return refusal_of(self.vettings_at(precision))

    @property
    def vetting_size(self) -> str:
        """The usual size of its vetting: ``smoke``, if there is one, because vetting takes many evaluations."""
        return "smoke" if "smoke" in self.sizes else "full"

    def to_record(self) -> dict[str, Any]:
        """Return the public fields, for people and programs: everything but the reference's source."""
        return {
            "id": self.id,
            "version": self.version,
            "title": self.title,
            "description": self.description,
            "dtype": self.dtype,
            "sizes": {name: dict(size) for name, size in self.sizes.items()},
            "gradient_policy": self.gradient_policy,
            "input_domain": self.input_domain,
            "tolerances": {precision: asdict(self.tolerance(precision)) for precision in PRECISIONS},
            "tags": list(self.tags),
            "baselines": [name for name in BASELINES if name not in LOWER_PRECISIONS or name in self.baselines],
            "kernelbench": None if self.kernelbench is None else asdict(self.kernelbench),
            "labels": None if self.labels is None else [str(label) for label in self.labels],
            "ranked": self.refusal is None,
            "refusal": self.refusal,
            "vetting": self._vetting_record(),
        }

    def limits_here(self, machines: Mapping[str, float], asked: Mapping[str, float] | None = None) -> Limits:
        """Return the limits of an evaluation: requested ones before the problem's, and these before the machine's."""
        return Limits(**{**machines, **self.limits, **(asked or {})})  # type: ignore[arg-type] # of whole bytes none is set

    def default_size(self, device_kind: str) -> str:
        """The size where none is named: ``full`` on CUDA; on a CPU ``smoke``, if there is one."""
        return "smoke" if device_kind == "cpu" and "smoke" in self.sizes else "full"

    def tolerance(self, precision: str) -> Tolerance:
        """The tolerance at ``precision``: the problem's own, else KernelBench's default for it."""
        own = self.tolerances.get(precision)
        return own or Tolerance(atol=_DEFAULT_TOLERANCE[precision], rtol=_DEFAULT_TOLERANCE[precision])

    def least_precision(self, precision: str) -> str:
        """The lowest precision that a candidate is expected to compute in.

        It is ``precision``, or a half precision that the reference itself is written in.
        """
        found = _HALF.search(self.source) if precision == "float32" else None
        return precision if found is None else "bfloat16" if found[0] == "bfloat16" else "float16"

    def sized_source(self, size: str) -> str:
        """Return the reference's source with the globals of ``size`` written in place.

        The assignment itself is rewritten, so that derived globals follow; ``evaluator.problems.module_constants``
        defines the possible names. Raises ``ProblemError`` for a size that the problem does not have.
        """
        if size not in self.sizes:
            raise ProblemError(f"problem {self.id} has no size {size!r}; it has {', '.join(self.sizes)}")
        return _override_globals(self.source, self.sizes[size], self.id)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON-ready data, all but the vetting; ``Problem.from_dict`` takes it back."""
        content = asdict(replace(self, vettings=()))
        del content["vettings"]
        return content

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Problem:
        """Inverse of ``to_dict``."""
        fields = dict(data)
        fields.pop("needs_vetting", None)  # as older stored definitions have it
        fields["tolerances"] = {name: Tolerance(**value) for name, value in fields["tolerances"].items()}
        fields["tags"] = tuple(fields["tags"])
        fields["baselines"] = tuple(fields.get("baselines", ()))  # stored definitions may be older than these
        fields["limits"] = dict(fields.get("limits", {}))
        if fields["kernelbench"] is not None:
            fields["kernelbench"] = KernelBenchIdentity(**fields["kernelbench"])
        return cls(**fields)

    def _vetting_record(self) -> dict[str, Any] | None:
        """Version, devices and sizes of the vetting: at its own precision, or else everything known of others."""
        vetting = next(iter((*self.vettings_at(self.dtype), *self.vettings)), None)
        if vetting is None:
            return None
        where = {name: getattr(vetting, name) for name in ("version", "device", "size", "precision", "torch")}
        return {**where, "stale": self.stale}


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


def _override_globals(source: str, overrides: Size, problem_id: str) -> str:
    try:
        return rewritten(source, {name: repr(value) for name, value in overrides.items()})
    except LookupError as error:
        raise ProblemError(f"problem {problem_id} has no global assignment of {error}") from error
    except SyntaxError as error:
        raise ProblemError(f"reference.py does not parse: {error}") from error
