"""What mutants are started from: once for each process of tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.redteam.mutating import Mutants


@pytest.fixture(scope="session")
def mutants(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mutants]:
    with Mutants(tmp_path_factory.mktemp("mutants")) as mutants:
        yield mutants
