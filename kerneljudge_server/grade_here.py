"""Grading of many candidates on this machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

from evaluator.config import EvalConfig
from evaluator.problems.problem import Problem
from kerneljudge.cli.output import BadUsage, say
from kerneljudge.grading.inputs import Entry, Work
from kerneljudge.grading.options import GradingOptions
from kerneljudge.grading.results import is_unsettled
from kerneljudge.grading.sources import Given
from kerneljudge.grading.todo import GradedEntry, Todo, refused_entry
from kerneljudge.records import ProblemSummary, SubmissionRecord, TierName
from kerneljudge_server import local
from kerneljudge_server.problems import known_problems, problem_of, problem_record

__all__ = ["ThisMachine"]


class ThisMachine:
    """This machine as a grader of the problems in a folder. Raises ``ProblemError``."""

    where = "on this machine"

    def __init__(self, problems_dir: Path | None, *, require_sandbox: bool) -> None:
        self._problems = known_problems(problems_dir)
        self._require_sandbox = require_sandbox

    def problems(self) -> list[ProblemSummary]:
        """Return the problems as records."""
        return [problem_record(problem) for problem in self._problems.values()]

    def grade(self, todo: Todo, options: GradingOptions) -> Iterator[GradedEntry]:
        """Yield the results, as ``Grader.grade``. Raises ``BadUsage`` and the engine's errors."""
        return _grade(self._problems, todo, options, require_sandbox=self._require_sandbox)


def _grade(
    problems: Mapping[str, Problem], todo: Todo, options: GradingOptions, *, require_sandbox: bool
) -> Iterator[GradedEntry]:
    """Grade one after another on one engine. The same source for the same problem is graded once."""
    device = options.device or local.default_device()

    def configure(problem: Problem) -> EvalConfig:
        return local.configure(
            problem,
            device,
            options.size,
            options.precision,
            options.require_gradients,
            options.baseline,
            limits=options.limits,
            tier=options.tier,
            rules=options.rules,
        )

    # Options that a problem does not have are reported before anything is graded.
    wanted = {entry.problem for entry in todo.entries}
    configs = {name: configure(problem) for name, problem in problems.items() if name in wanted}
    left = Counter(entry.digest for entry in todo.entries)
    seen: dict[str, GradedEntry] = {}
    unsettled: list[tuple[Entry, Work]] = []
    with local.Bench(device, require_sandbox=require_sandbox) as bench:

        def grade(entry: Entry, work: Work) -> GradedEntry:
            given = Given(work.text, work.is_response, work.key)
            if work.reference is None:
                problem, config = problems[work.problem], configs[work.problem]
            else:
                try:
                    problem = problem_of(work.reference, options.precision)
                    config = configure(problem)
                except BadUsage as error:
                    return refused_entry(entry, str(error), options)
            outcome = bench.grade(problem, local.candidate_of(given), config)
            outcome.record["author"], outcome.record["tier"] = options.author, cast(TierName, options.tier)
            return GradedEntry(entry, outcome.record, outcome.samples_ms)

        for entry, work in todo:
            known = seen.pop(entry.digest, None) or grade(entry, work)
            left[entry.digest] -= 1
            if is_unsettled(known.record):
                unsettled.append((entry, work))
            elif left[entry.digest]:
                # An unsettled result is not reused. A result is kept only while the same source comes again.
                seen[entry.digest] = known
            yield replace(known, entry=entry, record=_with_own(known.record, work))
        if unsettled:
            say(f"the machine was too noisy for {len(unsettled)} of them: they are measured once more")
        for entry, work in unsettled:
            graded = grade(entry, work)
            yield replace(graded, record=_with_own(graded.record, work), again=True)


def _with_own(record: SubmissionRecord, work: Work) -> SubmissionRecord:
    """Return ``record`` with the metadata and the parent of ``work``, whose grading others may share."""
    return cast(SubmissionRecord, {**record, "metadata": work.metadata, "parent": work.parent})
