"""Likewise those whose attack is told by its figures: other tests beside them would leave these unsettled."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.redteam.mutating import Mutants
from tests.redteam.mutations import MUTATIONS, Mutation


@pytest.mark.parametrize("mutation", [each for each in MUTATIONS if each.timed], ids=lambda mutation: mutation.name)
def test_without_this_defence_its_attack_gains_time(mutation: Mutation, mutants: Mutants, tmp_path: Path) -> None:
    assert mutants.complaints_without(mutation, tmp_path), "the attack gains nothing all the same"
