"""Every defence is needed: without it, an attack of the corpus gets through."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.redteam.mutating import Mutants, somebody_who_answers
from tests.redteam.mutations import MUTATIONS, Mutation

_WHAT_AN_ATTACK_DOES = "the candidate's process was killed from outside"
_BY_VERDICT = [mutation for mutation in MUTATIONS if not mutation.timed]


@pytest.mark.parametrize("mutation", _BY_VERDICT, ids=lambda mutation: mutation.name)
def test_without_this_defence_its_attack_gets_through(mutation: Mutation, mutants: Mutants, tmp_path: Path) -> None:
    with somebody_who_answers():
        complaints = mutants.complaints_without(mutation, tmp_path)
    assert complaints, "the attack is stopped all the same"
    faults = [complaint for complaint in complaints if "InfrastructureFault" in complaint]
    assert all(_WHAT_AN_ATTACK_DOES in fault for fault in faults), "it is the evaluator that is broken"


def test_with_every_defence_such_attacks_are_stopped(mutants: Mutants, tmp_path: Path) -> None:
    """In the same processes, so that it is the mutations that let them through. The corpus has all of them."""
    cases = sorted({mutation.case for mutation in _BY_VERDICT})
    with somebody_who_answers():
        assert not mutants.complaints(cases[::4], tmp_path)
