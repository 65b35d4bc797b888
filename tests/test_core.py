"""The core of the tests covers each verdict, problem, class of attack and defence."""

from __future__ import annotations

from pathlib import Path

import pytest

from evaluator.evaluation import Verdict
from evaluator.problems.loading import load_problems
from tests.core import core_cases, demands_of, is_slow
from tests.corpus import ATTACKS, load_cases
from tests.redteam.mutations import MUTATIONS, Mutation

_ROOT = Path(__file__).parent.parent
_CASES = {case.name: case for case in load_cases()}
_ON_CUDA_ALONE = {"I"}
"""Classes of attacks that there are on CUDA alone."""
_OUT_OF_MEMORY = "tests/evaluator/sandbox/test_sandbox.py::test_too_much_memory_is_out_of_memory"
"""A test has this verdict: in the corpus it is one of several ends of an attack."""


def _met() -> set[str]:
    return set().union(*(demands_of(_CASES[name]) for name in core_cases()))


def test_the_core_has_an_attack_for_each_defence() -> None:
    assert {f"defence: {mutation.name}" for mutation in MUTATIONS} <= _met()


def test_the_core_has_each_class_of_attack() -> None:
    assert {f"attack: {name}" for name in ATTACKS.keys() - _ON_CUDA_ALONE} <= _met()


def test_the_core_has_each_verdict() -> None:
    assert {f"verdict: {verdict}" for verdict in Verdict if verdict is not Verdict.OUT_OF_MEMORY} <= _met()
    path, _, test = _OUT_OF_MEMORY.partition("::")
    assert f"def {test}(" in (_ROOT / path).read_text(encoding="utf-8")
    assert not is_slow(_OUT_OF_MEMORY)


def test_the_core_has_an_honest_candidate_for_each_problem() -> None:
    assert {f"problem: {name}" for name in load_problems(_ROOT / "reference_models")} <= _met()


def test_the_core_is_a_small_part_of_the_corpus() -> None:
    assert len(core_cases()) < len(_CASES) / 4


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_each_mutation_has_one_place(mutation: Mutation) -> None:
    """A change of a source is noticed here, minutes before its mutation runs."""
    for name, old, _ in mutation.changes:
        assert (_ROOT / "evaluator" / name).read_text().count(old) == 1, f"{name} has no such place any more"
