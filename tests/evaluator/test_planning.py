"""Plans for a GPU that is not there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from evaluator.errors import InfrastructureFault
from evaluator.planning import Planned, plan_each
from evaluator.problem import Problem, load_problem

_GIB = 2**30
_SOURCE = """\
import os
import torch

{module}


class Model(torch.nn.Module):
    def forward(self, x):
        raise ValueError('not on any device')


def get_inputs():
    return [torch.rand(3)]


def get_init_inputs():
    return []
"""
_PLANNED = Planned("p", "full", "float32", 10 * _GIB, 40 * _GIB, lean=False, message="")


@pytest.mark.parametrize(
    ("planned_bytes", "fits", "scale"),
    [
        (40 * _GIB, True, None),
        (40 * _GIB + 1, False, "1/2"),
        (80 * _GIB, False, "1/2"),
        (81 * _GIB, False, "1/4"),
        (None, False, None),
    ],
)
def test_what_does_not_fit_has_the_share_that_would(planned_bytes: int | None, fits: bool, scale: str | None) -> None:
    found = replace(_PLANNED, planned_bytes=planned_bytes)
    assert (found.fits, found.scale) == (fits, scale)


def test_tensors_and_what_is_kept_beside_them_are_counted(problems: dict[str, Problem]) -> None:
    wanted = [(problems["relu"], "full", "float32"), (problems["relu"], "full", "bfloat16")]
    single, half = plan_each(wanted, 80 * _GIB)
    # Input and output of 6 GiB, their gradients, and as much again by each side and by the judge.
    assert single.planned_bytes is not None
    assert half.planned_bytes is not None
    assert 48 * _GIB < single.planned_bytes < 64 * _GIB
    assert single.fits
    assert 0.4 < half.planned_bytes / single.planned_bytes < 0.6
    (small,) = plan_each(wanted[:1], 16 * _GIB)
    assert (small.fits, small.lean, small.scale) == (False, True, "1/4")


def test_a_reference_that_fails_has_no_plan_and_the_next_one_has(tmp_path: Path, problems: dict[str, Problem]) -> None:
    folder = _folder(tmp_path, "print('to nobody')")
    wanted = [(load_problem(folder), "full", "float32"), (problems["relu"], "smoke", "float32")]
    failing, right = plan_each(wanted, 80 * _GIB)
    assert not failing.fits
    assert failing.planned_bytes is None
    assert "not on any device" in failing.message
    assert right.fits


def test_a_planner_that_ends_is_our_fault(tmp_path: Path) -> None:
    folder = _folder(tmp_path, "os._exit(7)")
    with pytest.raises(InfrastructureFault, match="exit status 7"):
        list(plan_each([(load_problem(folder), "full", "float32")], 80 * _GIB))


def _folder(parent: Path, module: str) -> Path:
    """A problem whose reference does this as it is executed, and fails when it is called."""
    folder = parent / "odd"
    folder.mkdir()
    (folder / "reference.py").write_text(_SOURCE.format(module=module))
    (folder / "problem.toml").write_text('title = "T"\ndescription = "D"\n[sizes.full]\n')
    return folder
