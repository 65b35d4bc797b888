"""Deciding about one file of a checkout: admitted as a problem, or refused, each with its reasons and notes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from evaluator.errors import EvaluatorError, ProblemError
from evaluator.problems.importing.checkout import identify, read_published
from evaluator.problems.importing.examine import SMOKE_BYTES, SMOKE_OPERATIONS, Sandbox, examine
from evaluator.problems.importing.findings import Findings, Scaled, Value
from evaluator.problems.importing.folder import known_problem, manifest, write_problem
from evaluator.problems.problem import KernelBenchIdentity, Problem
from evaluator.problems.published import Published, Unusable

__all__ = ["Admission", "AdmissionStatus", "import_file", "size_name"]

_GIB: Final = 2**30
_MANY_BYTES: Final = 4 * _GIB
_MANY_ELEMENTS: Final = 2**31
_NAMED: Final = 4
_LEVEL_4: Final = (
    "level 4 loads whole models of Hugging Face's transformers over the network while it is imported, and there is no "
    "network in the sandbox"
)


class AdmissionStatus(StrEnum):
    """The result of an import of one file.

    ``UNCHANGED``: it was there already, from the same file and at these sizes. ``FAILED``: a process of ours failed, so
    that nothing is known of it.
    """

    NEW = "new"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    REFUSED = "refused"
    FAILED = "failed"

    @property
    def admitted(self) -> bool:
        return self in (AdmissionStatus.NEW, AdmissionStatus.CHANGED, AdmissionStatus.UNCHANGED)


@dataclass(frozen=True)
class Admission:
    """The outcome of one file. An admitted file has a ``problem``, any other a ``reason``.

    ``notes``: oddities of the problem. ``bytes``: the bytes that a forward pass moves at each size.
    """

    id: str
    identity: KernelBenchIdentity
    status: AdmissionStatus
    problem: Problem | None
    reason: str = ""
    notes: tuple[str, ...] = ()
    bytes: Mapping[str, int] | None = None

    def to_record(self) -> dict[str, Any]:
        """Return plain JSON-ready data."""
        problem = self.problem
        return {
            "id": self.id,
            "level": self.identity.level,
            "problem_id": self.identity.problem_id,
            "name": self.identity.name,
            "status": str(self.status),
            "reason": self.reason or None,
            "notes": list(self.notes),
            "version": None if problem is None else problem.version,
            "sizes": None if problem is None else {name: dict(size) for name, size in problem.sizes.items()},
            "bytes": None if self.bytes is None else dict(self.bytes),
            "row_independent": None if problem is None else problem.row_independent,
            "ranked": problem is not None and problem.refusal is None,
        }


def size_name(scale: Fraction) -> str:
    """Name a size by its scale: ``scale_1_64``."""
    return f"scale_{scale.numerator}_{scale.denominator}"


def import_file(
    path: Path, into: Path, sandbox: Sandbox, scale: Fraction | None, taken: Collection[str] = ()
) -> Admission:
    """Admit the problem in ``path`` into the folder ``into``, or refuse it.

    ``taken``: ids of other problems. Raises ``OSError`` where ``into`` cannot be written to.
    """
    problem_id, identity = identify(path)
    try:
        if problem_id in taken:
            raise Unusable("another file of this checkout has the same level, number and name")
        return _admit(path, problem_id, identity, into, sandbox, scale)
    except (Unusable, ProblemError) as error:
        return Admission(problem_id, identity, AdmissionStatus.REFUSED, None, str(error))
    except RecursionError:
        return Admission(
            problem_id, identity, AdmissionStatus.REFUSED, None, "it does not parse: it is nested too deeply"
        )
    except EvaluatorError as error:
        return Admission(problem_id, identity, AdmissionStatus.FAILED, None, f"{error}; import it again")


def _admit(
    path: Path, problem_id: str, identity: KernelBenchIdentity, into: Path, sandbox: Sandbox, scale: Fraction | None
) -> Admission:
    if identity.level == 4:
        raise Unusable(_LEVEL_4)
    published = read_published(path)
    known = known_problem(into / problem_id)
    if known is not None and _is_of(known, published, scale):
        return Admission(problem_id, identity, AdmissionStatus.UNCHANGED, known)
    findings = examine(published, sandbox, scale)
    notes = tuple(_notes(findings, published, scale))
    text = _manifest(published, identity, findings, scale, notes)
    problem = write_problem(into / problem_id, published.source, text)
    sizes = {"full": findings.full, "smoke": findings.smoke}
    if scale is not None and findings.scaled is not None:
        sizes[size_name(scale)] = findings.scaled
    return Admission(
        problem_id,
        identity,
        AdmissionStatus.NEW if known is None else AdmissionStatus.CHANGED,
        problem,
        notes=notes,
        bytes={name: scaled.bytes for name, scaled in sizes.items()},
    )


def _is_of(known: Problem, published: Published, scale: Fraction | None) -> bool:
    """Whether ``known`` is an import of this file at these sizes. Its other fields may have been edited by hand."""
    wanted = {"full", "smoke"} | (set() if scale is None else {size_name(scale)})
    return known.source == published.source and set(known.sizes) == wanted


def _manifest(
    published: Published,
    identity: KernelBenchIdentity,
    found: Findings,
    scale: Fraction | None,
    notes: tuple[str, ...],
) -> str:
    described = [
        f"{(published.description or published.title).rstrip('.')}.",
        f"Level {identity.level}, problem {identity.problem_id} of KernelBench.",
        *(f"{note[:1].upper()}{note[1:]}." for note in notes),
    ]
    sizes = {"full": found.full.values, "smoke": found.smoke.values}
    if scale is not None and found.scaled is not None:
        sizes[size_name(scale)] = found.scaled.values
    changed = [name for name, value in found.full.values.items() if any(size[name] != value for size in sizes.values())]
    return manifest(
        title=published.title,
        description=" ".join(described),
        identity=identity,
        sizes={size: {name: values[name] for name in changed} for size, values in sizes.items()},
        gradient_policy="none" if found.backward else "check",
        input_domain="real" if published.drawn else "as_written",
        row_independent=found.row_independent,
        whole_inputs=found.whole_inputs,
        pooled=found.pooled,
    )


def _notes(found: Findings, published: Published, scale: Fraction | None) -> list[str]:
    """List oddities of an admitted problem."""
    notes = [f"input {number} is {_as_given(value)}" for number, value in enumerate(found.inputs, 1) if _is_odd(value)]
    if not published.drawn:
        notes.append("inputs are only as get_inputs makes them: what it draws, it changes")
    notes += _notes_on_outputs(found.outputs)
    input_bytes = sum(value.bytes for value in found.inputs)
    if input_bytes >= _MANY_BYTES:
        notes.append(f"its inputs take {input_bytes / _GIB:.1f} GiB as published")
    if any(value.elements >= _MANY_ELEMENTS for value in (*found.inputs, *found.outputs)):
        notes.append("a tensor has 2^31 elements or more as published")
    if found.backward:
        notes.append(f"gradients are not looked at, its backward pass fails: {found.backward}")
    elif not found.differentiable:
        notes.append("there is nothing to differentiate")
    elif found.without_gradient:
        notes.append(f"nothing flows back to {_listed(found.without_gradient)}")
    if found.state:
        kind = "a batch norm in training" if found.batch_norm else "a call"
        notes.append(f"{kind} changes {_listed(found.state)}; that is not compared")
    notes += _notes_on_sizes(found, scale)
    return notes


def _is_odd(value: Value) -> bool:
    return value.dtype != "float32" or not value.shape or value.layout != "contiguous"


def _as_given(value: Value) -> str:
    if value.dtype is None:
        return f"{value.text}, no tensor"
    if not value.shape:
        return "a scalar"
    said = [] if value.dtype == "float32" else [f"{value.dtype}, and stays so"]
    if value.layout == "permuted":
        said.append("with its dimensions in another order in memory, which stays so")
    elif value.layout == "gaps":
        said.append("with gaps in memory or elements that share a place, and is made contiguous")
    return ", ".join(said)


def _notes_on_outputs(outputs: tuple[Value, ...]) -> list[str]:
    notes = [f"it returns {len(outputs)} tensors"] if len(outputs) > 1 else []
    if any(not output.shape for output in outputs):
        notes.append("it returns a scalar")
    others = dict.fromkeys(output.dtype or "" for output in outputs if output.dtype != "float32")
    return notes + [f"it returns {dtype}, {_compared(dtype)}" for dtype in others]


def _compared(dtype: str) -> str:
    if dtype.startswith("complex"):
        return "compared as pairs of reals"
    if "float" in dtype:
        return "compared as that"
    return "equal but for ties and rounding"


def _notes_on_sizes(found: Findings, scale: Fraction | None) -> list[str]:
    notes = []
    if found.smoke.bytes > SMOKE_BYTES or found.smoke.operations > SMOKE_OPERATIONS:
        notes.append(
            f"smoke is as small as its constants can be made, and large: {_work(found.smoke)}, "
            f"{found.forward_s:.1f} s for a call"
        )
    if scale is not None and found.scaled is not None and found.scaled.bytes > scale * found.full.bytes:
        reached = found.full.bytes / max(1, found.scaled.bytes)
        notes.append(f"{size_name(scale)} is 1/{reached:.1f} at the smallest")
    return notes


def _work(scaled: Scaled) -> str:
    return f"{scaled.bytes / 2**20:.0f} MiB and {scaled.operations / 1e9:.1f} billion operations"


def _listed(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:_NAMED])
    return shown if len(names) <= _NAMED else f"{shown} and {len(names) - _NAMED} more"
