"""Problems: a reference model with its sizes, tolerances and policies. ``evaluator.problems.loading`` reads them."""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from evaluator.config import BASELINES, IEEE, LOWER_PRECISIONS, PRECISIONS, EvalConfig, Limits
from evaluator.errors import ProblemError
from evaluator.problems.module_constants import integers, rewritten
from evaluator.problems.shapes import Shape, full_name, split_name
from evaluator.problems.vetting_record import Vetting, refusal_of
from kerneljudge.terms.choices import GRADIENT_POLICIES, INPUT_DOMAINS
from kerneljudge.terms.rules import NO_RULES, Rules
from kerneljudge.terms.vetting_labels import Label

__all__ = [
    "GRADIENT_POLICIES",
    "INPUT_DOMAINS",
    "POOLED",
    "WHOLE_BELOW",
    "KernelBenchIdentity",
    "Problem",
    "Size",
    "Tolerance",
]

POOLED: Final = ("mean", "sum")
"""How outputs follow from those of slices of rows, where they have no rows themselves."""

WHOLE_BELOW: Final = 10**16
"""The bound of whole numbers in sizes and shapes.

From here on, a database gives whole floats back without their point, so that a whole number is a float that was stored.
"""

_DEFAULT_TOLERANCE: Final = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 1e-2}
_CONVOLVES: Final = re.compile(r"conv|\b(?:LSTM|GRU|RNN)", re.IGNORECASE)
_HALF: Final = re.compile(r"\b(?:bfloat16|float16)\b|\.half\b")

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
    So the judge may compute the reference slice by slice. ``whole_inputs``: it may do so if each slice has all of these
    arguments of ``forward`` (the second matrix of a product). ``pooled``: it may do so where the outputs are the
    ``mean`` or the ``sum`` of those of all rows (a loss). ``tf32``: convolutions and recurrent layers may round to TF32
    on a GPU, as PyTorch's defaults let them. ``baselines``: lower precisions in which the reference may be
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
    whole_inputs: tuple[int, ...] = ()
    pooled: str = ""
    tf32: bool = True
    tags: tuple[str, ...] = ()
    kernelbench: KernelBenchIdentity | None = None
    baselines: tuple[str, ...] = ()
    limits: Mapping[str, float] = field(default_factory=dict)
    """Fields of ``Limits`` with values of their own for this problem."""
    shapes: Mapping[str, Mapping[str, Shape]] = field(default_factory=dict)
    """Further shapes by size and name, at which a candidate must be right as well."""
    held_out_salt: str = ""
    """A secret of the problem's author, without which the public version would tell held-out shapes to a search."""
    rules: Rules = NO_RULES
    """Rules about the source of every candidate."""
    vettings: tuple[Vetting, ...] = field(default=(), compare=False)

    @cached_property
    def version(self) -> str:
        """The first 16 hex digits of the SHA-256 over everything that can change a verdict."""
        content = self.to_dict()
        for cosmetic in ("title", "description", "tags", "kernelbench", "baselines"):
            del content[cosmetic]
        for younger in ("limits", "shapes", "held_out_salt", "rules", "whole_inputs", "pooled"):  # than some versions
            if not content[younger]:
                del content[younger]
        if content["tf32"] and not self.convolves:  # no verdict of theirs depends on it
            del content["tf32"]
        canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]

    @property
    def in_slices(self) -> bool:
        """Whether the judge may compute the reference in slices of rows."""
        return self.row_independent or bool(self.whole_inputs or self.pooled)

    @cached_property
    def convolves(self) -> bool:
        """Whether the source names convolutions or recurrent layers, which torch lets round to TF32 on a GPU."""
        return _CONVOLVES.search(self.source) is not None

    def tf32_in(self, config: EvalConfig) -> bool:
        """Whether convolutions and recurrent layers begin with TF32 allowed on both sides, as in PyTorch's defaults."""
        return self.tf32 and config.baseline != IEEE

    def refuses_baseline(self, config: EvalConfig) -> str | None:
        """Return the reason why a baseline is not possible for this problem, in words; ``None`` where it is."""
        if config.baseline not in (*LOWER_PRECISIONS, IEEE):
            return None
        if config.baseline not in (IEEE, *self.baselines):
            allowed = ", ".join([*(name for name in BASELINES if name not in LOWER_PRECISIONS), *self.baselines])
            return f"problem {self.id} has no baseline {config.baseline}; it has {allowed}"
        if config.precision != "float32":
            return f"baseline {config.baseline} is for precision float32, not {config.precision}"
        if config.baseline in (IEEE, "tf32") and config.device_kind != "cuda":
            return f"baseline {config.baseline} is for CUDA devices: nothing else computes in TF32"
        return None

    def refuses_rules(self, further: Rules) -> str | None:
        """Return the reason why a request cannot add these rules to the problem's; ``None`` where it can."""
        try:
            self.rules.joined(further)
        except ValueError as error:
            return str(error)
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
            "shapes": {size: self._shown_shapes(size) for size in self.shapes},
            "held_out_shapes": {size: len(self.shapes[size]) - len(self._shown_shapes(size)) for size in self.shapes},
            "gradient_policy": self.gradient_policy,
            "tf32": self.tf32 and self.convolves,
            "input_domain": self.input_domain,
            "tolerances": {precision: asdict(self.tolerance(precision)) for precision in PRECISIONS},
            "tags": list(self.tags),
            "baselines": [name for name in BASELINES if name not in LOWER_PRECISIONS or name in self.baselines],
            "rules": self.rules.to_dict(),
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
        """Return the reference's source with the globals of ``size``, or of one of its shapes, written in place.

        The assignment itself is rewritten, so that derived globals follow; ``evaluator.problems.module_constants``
        defines the possible names. Raises ``ProblemError`` for a size or shape that the problem does not have.
        """
        name, shape = split_name(size)
        if name not in self.sizes or (shape is not None and shape not in self.shapes_of(name)):
            known = [*self.sizes, *(full_name(name, each) for name, shapes in self.shapes.items() for each in shapes)]
            raise ProblemError(f"problem {self.id} has no size {size!r}; it has {', '.join(known)}")
        changed = {} if shape is None else self.shapes_of(name)[shape].values
        return _override_globals(self.source, {**self.sizes[name], **changed}, self.id)

    def shapes_of(self, size: str) -> Mapping[str, Shape]:
        """Return the shapes of a size by name; none for a shape itself."""
        return self.shapes.get(size, {})

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON-ready data, all but the vetting; ``Problem.from_dict`` takes it back."""
        content = asdict(replace(self, vettings=()))
        del content["vettings"]
        return {**content, "rules": self.rules.to_dict()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Problem:
        """Inverse of ``to_dict``."""
        fields = dict(data)
        fields.pop("needs_vetting", None)  # as older stored definitions have it
        fields["sizes"] = {name: _as_given(size) for name, size in fields["sizes"].items()}
        fields["tolerances"] = {name: Tolerance(**value) for name, value in fields["tolerances"].items()}
        fields["tags"] = tuple(fields["tags"])
        fields["baselines"] = tuple(fields.get("baselines", ()))  # stored definitions may be older than these
        fields["whole_inputs"] = tuple(fields.get("whole_inputs", ()))
        fields["limits"] = dict(fields.get("limits", {}))
        fields["shapes"] = {
            size: {name: Shape(shape["use"], _as_given(shape["values"])) for name, shape in shapes.items()}
            for size, shapes in fields.get("shapes", {}).items()
        }
        fields["rules"] = Rules.from_dict(fields.get("rules", {}))
        if fields["kernelbench"] is not None:
            fields["kernelbench"] = KernelBenchIdentity(**fields["kernelbench"])
        return cls(**fields)

    def trouble_of(self, size: str, shape: str) -> tuple[str, ...]:
        """Return in words how a shape differs from its size, without a number."""
        return self.shapes[size][shape].trouble({**integers(ast.parse(self.source)), **self.sizes[size]})

    def _shown_shapes(self, size: str) -> dict[str, Any]:
        """The shapes of a size that clients may know."""
        return {
            name: {"use": shape.use, "values": dict(shape.values)}
            for name, shape in self.shapes[size].items()
            if shape.use != "held_out"
        }

    def _vetting_record(self) -> dict[str, Any] | None:
        """Version, devices and sizes of the vetting: at its own precision, or else everything known of others."""
        vetting = next(iter((*self.vettings_at(self.dtype), *self.vettings)), None)
        if vetting is None:
            return None
        where = {name: getattr(vetting, name) for name in ("version", "device", "size", "precision", "torch")}
        return {**where, "stale": self.stale}


def _as_given(values: Size) -> dict[str, int | float]:
    """Return the numbers of a stored size, with floats that a database gave back as whole numbers."""
    large = {name: float(value) for name, value in values.items() if abs(value) >= WHOLE_BELOW}
    return {**values, **large}


def _override_globals(source: str, overrides: Size, problem_id: str) -> str:
    try:
        return rewritten(source, {name: repr(value) for name, value in overrides.items()})
    except LookupError as error:
        raise ProblemError(f"problem {problem_id} has no global assignment of {error}") from error
    except SyntaxError as error:
        raise ProblemError(f"reference.py does not parse: {error}") from error
