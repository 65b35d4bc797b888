"""Whose fault a kill for want of memory is, by what a control group counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from evaluator.sandbox.cgroups import Group


@pytest.mark.parametrize(
    ("events", "own", "for_others"),
    [
        ("low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\noom_group_kill 0\n", False, False),
        ("low 0\nhigh 0\nmax 9\noom 1\noom_kill 3\noom_group_kill 1\n", True, False),
        ("low 0\nhigh 0\nmax 0\noom 0\noom_kill 1\noom_group_kill 1\n", False, True),
        ("low 0\nhigh 0\nmax 9\noom 1\noom_kill 0\n", False, False),
        ("oom_kill 1\n", True, False),  # a kernel that does not say whose limit it was
        ("", False, False),
    ],
    ids=["nothing", "its own limit", "the machine's", "nobody was killed", "an old kernel", "no file"],
)
def test_a_kill_counts_against_a_group_where_its_own_limit_was_reached(
    tmp_path: Path, events: str, own: bool, for_others: bool
) -> None:
    (tmp_path / "memory.events").write_text(events)
    group = Group(tmp_path, limits=True)
    assert (group.ran_out_of_memory(), group.was_killed_for_others()) == (own, for_others)
