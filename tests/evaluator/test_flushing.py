"""How much of a processor's caches is emptied before a call."""

from __future__ import annotations

from pathlib import Path

import pytest

from evaluator.judge.device import flushable_bytes

_MIB = 2**20


def _processor(folder: Path, number: int, caches: list[tuple[int, str, str, str]]) -> None:
    for index, (level, kind, size, shared_by) in enumerate(caches):
        cache = folder / f"cpu{number}" / "cache" / f"index{index}"
        cache.mkdir(parents=True)
        told = {"level": str(level), "type": kind, "size": size, "shared_cpu_list": shared_by}
        for name, value in told.items():
            (cache / name).write_text(value + "\n")


def _machine(folder: Path, processors: int, *, second: str, third: str | None) -> range:
    for number in range(processors):
        caches = [(1, "Data", "48K", str(number)), (1, "Instruction", "64K", str(number))]
        caches.append((2, "Unified", second, str(number)))
        if third is not None:
            caches.append((3, "Unified", third, f"0-{processors - 1}"))
        _processor(folder, number, caches)
    return range(processors)


@pytest.mark.parametrize(
    ("second", "third", "expected"),
    [
        ("512K", "16384K", 16 * _MIB),  # the last level, which all processors share
        ("2048K", "266240K", 8 * _MIB),  # too large: each processor's own of the level before
        ("2048K", None, 8 * _MIB),
        ("16384K", "266240K", 32 * _MIB),  # as much as can be
    ],
)
def test_the_last_level_that_is_not_too_large_is_emptied(
    tmp_path: Path, second: str, third: str | None, expected: int
) -> None:
    assert flushable_bytes(_machine(tmp_path, 4, second=second, third=third), tmp_path) == expected


def test_caches_of_processors_that_nothing_runs_on_do_not_count(tmp_path: Path) -> None:
    _machine(tmp_path, 8, second="1024K", third="266240K")
    assert flushable_bytes({1, 3}, tmp_path) == 2 * _MIB


@pytest.mark.parametrize("size", ["", "unknown", None])
def test_where_a_machine_does_not_tell_as_much_as_can_be_is_emptied(tmp_path: Path, size: str | None) -> None:
    if size is not None:
        _processor(tmp_path, 0, [(3, "Unified", size, "0")])
    assert flushable_bytes({0, 1}, tmp_path) == 32 * _MIB
