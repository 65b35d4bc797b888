"""Writing an admitted problem as data: ``reference.py`` as published, and its ``problem.toml``."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from evaluator.errors import ProblemError
from evaluator.problems.loading import load_problem
from evaluator.problems.problem import KernelBenchIdentity, Problem

__all__ = ["known_problem", "manifest", "write_problem"]

_BARE: Final = re.compile(r"[A-Za-z0-9_]+")


def known_problem(folder: Path) -> Problem | None:
    """Return the problem that is in ``folder`` already; ``None`` where there is none, or an unusable one."""
    try:
        return load_problem(folder)
    except ProblemError:
        return None


def manifest(
    *,
    title: str,
    description: str,
    identity: KernelBenchIdentity,
    sizes: Mapping[str, Mapping[str, int]],
    gradient_policy: str,
    input_domain: str,
    row_independent: bool,
    whole_inputs: Sequence[int],
    pooled: str,
) -> str:
    """Return the text of ``problem.toml``."""
    tags = ["kernelbench", f"level{identity.level}", str(identity.problem_id)]
    lines = [f"title = {_text(title)}", f"description = {_text(description)}", f"tags = {json.dumps(tags)}"]
    for size, values in sizes.items():
        lines += ["", f"[sizes.{_key(size)}]"]
        lines += [f"{_key(name)} = {value}" for name, value in values.items()]
    lines += ["", "[gradients]", f"policy = {_text(gradient_policy)}"]
    lines += ["", "[inputs]", f"domain = {_text(input_domain)}"]
    slices = ["row_independent = true"] if row_independent else []
    slices += [f"whole_inputs = {[*whole_inputs]}"] if whole_inputs else []
    slices += [f"pooled = {_text(pooled)}"] if pooled else []
    if slices:
        lines += ["", "[reference]", *slices]
    lines += ["", "[kernelbench]", f"level = {identity.level}", f"problem_id = {identity.problem_id}"]
    return "\n".join([*lines, f"name = {_text(identity.name)}", ""])


def write_problem(folder: Path, source: str, text: str) -> Problem:
    """Write both files and read them back, so that a reader of the folder finds no problem in it, or a whole one.

    Raises ``OSError``, and ``ProblemError`` where the written files are no valid problem.
    """
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / "problem.toml"
    target.unlink(missing_ok=True)
    (folder / "reference.py").write_text(source, encoding="utf-8", newline="\n")
    draft = folder / ".problem.toml"
    draft.write_text(text, encoding="utf-8", newline="\n")
    draft.replace(target)
    try:
        return load_problem(folder)
    except ProblemError:
        # One that cannot be read would keep a service from starting.
        for path in (target, folder / "reference.py"):
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            folder.rmdir()
        raise


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def _text(value: str) -> str:
    """Write a basic string of TOML; it is JSON's but for one character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
