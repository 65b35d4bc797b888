"""Every defence is needed: without it, an attack of the corpus gets through."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.redteam.mutating import complaints_about_mutant, somebody_who_answers
from tests.redteam.mutations import MUTATIONS, Mutation


@pytest.mark.parametrize("mutation", [each for each in MUTATIONS if not each.timed], ids=lambda mutation: mutation.name)
def test_without_this_defence_its_attack_gets_through(mutation: Mutation, tmp_path: Path) -> None:
    with somebody_who_answers():
        assert complaints_about_mutant(mutation, tmp_path), "the attack is stopped all the same"
