"""``kerneljudge problems import``: a conversion of a KernelBench checkout to problems, with a table of the results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from evaluator.errors import EvaluatorError
from evaluator.problems.importing import LEVELS, Admission, AdmissionStatus, find_files, import_file
from evaluator.problems.loading import load_problem, save_vetting
from kerneljudge.cli.output import BadUsage, ExitStatus
from kerneljudge.cli.render import plain
from kerneljudge_server import local
from kerneljudge_server.folders import cache_dir

__all__ = ["Imported", "parse_scale", "run_import"]

_STYLES: Final = {AdmissionStatus.REFUSED: "red", AdmissionStatus.FAILED: "yellow", AdmissionStatus.UNCHANGED: "dim"}
_ARROW: Final = "\N{RIGHTWARDS ARROW}"

Show = Callable[[str, str, float | None], None]


@dataclass(frozen=True)
class Imported:
    """The result of an import. ``unvetted`` has the reasons why a requested vetting failed, by problem."""

    into: Path
    admissions: tuple[Admission, ...]
    unvetted: dict[str, str]

    @property
    def status(self) -> ExitStatus:
        statuses = {admission.status for admission in self.admissions}
        if AdmissionStatus.FAILED in statuses or self.unvetted:
            return ExitStatus.FAULT
        return ExitStatus.NOT_PASSED if AdmissionStatus.REFUSED in statuses else ExitStatus.OK

    def to_record(self) -> dict[str, Any]:
        """Return the result as plain data for JSON."""
        return {
            "into": str(self.into),
            "admitted": sum(admission.status.admitted for admission in self.admissions),
            **{str(status): self._counts[status] for status in AdmissionStatus},
            "items": [
                {**admission.to_record(), "unvetted": self.unvetted.get(admission.id)} for admission in self.admissions
            ],
        }

    def to_text(self) -> RenderableType:
        """Return a line for each problem, and the totals."""
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column("problem", no_wrap=True)
        table.add_column("result", no_wrap=True)
        table.add_column("smoke, and other sizes", overflow="fold")
        table.add_column("remarks", overflow="fold")
        for admission in self.admissions:
            unvetted = self.unvetted.get(admission.id)
            known = [
                *filter(None, [admission.reason]),
                *admission.notes,
                *_slices(admission),
                *([] if unvetted is None else [f"not vetted: {unvetted}"]),
                *_refusal(admission),
            ]
            table.add_row(
                plain(admission.id),
                Text(str(admission.status), _STYLES.get(admission.status, "green")),
                Text(plain("\n".join(_sizes(admission)))),
                Text(plain("\n".join(known))),
            )
        counts = ", ".join(f"{self._counts[status]} {status}" for status in AdmissionStatus if self._counts[status])
        ranked = sum(admission.to_record()["ranked"] for admission in self.admissions)
        return Group(table, Text(), Text(f"{len(self.admissions)} problems: {counts}; {ranked} ranked. In {self.into}"))

    @property
    def _counts(self) -> Counter[AdmissionStatus]:
        return Counter(admission.status for admission in self.admissions)


def parse_scale(text: str | None) -> Fraction | None:
    """Parse a scale such as ``1/64`` or ``0.25``. Raises ``BadUsage``."""
    if text is None:
        return None
    try:
        scale = Fraction(text)
    except (ValueError, ZeroDivisionError):
        scale = Fraction(0)
    if not 0 < scale < 1:
        raise BadUsage(f"--scale must be a share between 0 and 1, such as 1/64, not {text!r}")
    return scale


def run_import(
    directory: Path,
    into: Path,
    *,
    levels: Sequence[int] | None,
    scale: Fraction | None,
    vetted: bool,
    show: Show,
    require_sandbox: bool,
) -> Imported:
    """Import the problems in ``directory`` into the folder ``into``.

    Raises ``BadUsage`` where the folder cannot be written to, ``ProblemError`` where there is nothing to import, and
    ``EvaluatorError`` where no sandbox can be started.
    """
    files = find_files(directory, levels or LEVELS)
    try:
        into.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadUsage(f"cannot write to {into}: {error.strerror or error}") from error
    # It is imported here, because wrong arguments are reported without an engine.
    from evaluator.engine import Engine  # noqa: PLC0415

    admissions: list[Admission] = []
    with Engine(device=None, cache_dir=cache_dir(), require_sandbox=require_sandbox) as engine:
        for number, path in enumerate(files):
            show("importing", f"{number + 1} of {len(files)}, {path.stem}", number / len(files))
            try:
                taken = [admission.id for admission in admissions]
                admissions.append(import_file(path, into, engine, scale, taken))
            except OSError as error:
                raise BadUsage(f"cannot write to {into}: {error.strerror or error}") from error
    imported = Imported(into, tuple(admissions), {})
    return _vetted(imported, show) if vetted else imported


def _vetted(imported: Imported, show: Show) -> Imported:
    """Vet all problems that are not vetted yet, and return the result.

    A problem that cannot be vetted does not stop the others.
    """
    unvetted = dict[str, str]()
    left = [each.problem for each in imported.admissions if each.problem is not None and each.problem.labels is None]
    most = max(1, len(left))

    def report(problem: str, check: str, _share: float | None) -> None:
        show("vetting", f"{most - len(left) + 1} of {most}, {problem}: {check}", (most - len(left)) / most)

    while left:
        try:
            device = local.default_device()
            wanted = [(problem, local.configure(problem, device, problem.vetting_size, None, None)) for problem in left]
            for vetting in local.vet(wanted, report):
                save_vetting(imported.into / vetting.problem, vetting)
                left.pop(0)
        except EvaluatorError as error:
            unvetted[left.pop(0).id] = str(error)
    return Imported(
        imported.into,
        tuple(
            each if each.problem is None else replace(each, problem=load_problem(imported.into / each.id))
            for each in imported.admissions
        ),
        unvetted,
    )


def _slices(admission: Admission) -> list[str]:
    problem = admission.problem
    return ["judged in slices of rows"] if problem is not None and problem.in_slices else []


def _refusal(admission: Admission) -> list[str]:
    problem = admission.problem
    return [f"not ranked: {problem.refusal}"] if problem is not None and problem.labels and problem.refusal else []


def _sizes(admission: Admission) -> list[str]:
    """Return a line on each size but the published one, with the values of its constants."""
    if admission.problem is None:
        return []
    sizes = dict(admission.problem.sizes)
    full = sizes.pop("full")
    lines = []
    for name, size in sizes.items():
        changes = [f"{key} {full[key]}{_ARROW}{value}" for key, value in size.items() if full.get(key) != value]
        prefix = "" if name == "smoke" else f"{name}: "
        lines.append(prefix + (", ".join(changes) or "as published"))
    return lines
