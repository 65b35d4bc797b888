"""``kerneljudge prepare``: the preparation of fast builds, with a report of its result."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import asdict
from typing import Any

from evaluator.processes.prepare_machine import PreparationResult, preparation_names, prepare, prepared_root
from kerneljudge.cli.output import BadUsage

__all__ = ["prepare_machine"]


def prepare_machine(say: Callable[[str], None], names: Collection[str]) -> tuple[dict[str, Any], bool]:
    """Prepare for the recipes in ``names``, or for all, and report every step.

    Return the record for JSON, and whether everything is there. Raises ``BadUsage`` for an unknown name.
    """
    unknown = sorted(set(names) - set(preparation_names()))
    if unknown:
        raise BadUsage(f"nothing can be prepared for {unknown[0]!r}; there is {', '.join(preparation_names())}")
    say(f"preparing in {prepared_root()}")
    results: list[PreparationResult] = []
    for result in prepare(lambda line: say(f"  {line}"), names):
        say(_line(result))
        results.append(result)
    complete = all(result.obstacle is None for result in results)
    folders = [{**asdict(result), "folder": result.folder and str(result.folder)} for result in results]
    return {"root": str(prepared_root()), "preparations": folders, "complete": complete}, complete


def _line(result: PreparationResult) -> str:
    if result.covered_by is not None:
        return f"{result.name}: not needed, {result.covered_by} does all that it does"
    if result.obstacle is not None:
        return f"{result.name}: not made: {result.obstacle}. Without it builds are right, and slower: {result.gain}"
    made = f"made in {result.seconds:.0f} s" if result.seconds else "is there already"
    return f"{result.name}: {made}, {result.size_bytes / 1e9:.1f} GB: {result.gain}"
