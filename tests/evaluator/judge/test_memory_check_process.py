"""Plans for a GPU that is not there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from evaluator.judge.correctness.reference import Reference
from evaluator.judge.device.cpu import CpuDevice
from evaluator.judge.device.cuda import cuda_capacity
from evaluator.judge.memory_plan import draft_plan, fitting_share
from evaluator.judge.reference_memory import Use, use_of
from evaluator.judge.signature import Signature
from evaluator.problems.loading import load_problem
from evaluator.problems.memory_check import Planned, plan_each
from evaluator.problems.problem import Problem
from evaluator.protocol.shared_memory import TensorSpec

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
_PLANNED = Planned("p", "full", "float32", 10 * _GIB, 40 * _GIB, lean=False, scale=None, message="")


@pytest.mark.parametrize(("planned_bytes", "fits"), [(40 * _GIB, True), (40 * _GIB + 1, False), (None, False)])
def test_what_is_planned_is_held_against_the_room(planned_bytes: int | None, fits: bool) -> None:
    assert replace(_PLANNED, planned_bytes=planned_bytes).fits is fits


@pytest.mark.parametrize("gib", [4, 8, 12, 16, 24, 40])
@pytest.mark.parametrize(("problem", "gradients"), [("relu", True), ("gemm", True), ("cross_entropy", False)])
def test_the_share_that_is_named_fits_and_twice_as_much_does_not(
    problem: str, gradients: bool, gib: int, problems: dict[str, Problem]
) -> None:
    known = problems[problem]
    reference = Reference(known, "full", "float32", CpuDevice())
    signature, capacity = reference.signature, cuda_capacity(gib * _GIB)
    sliced = known.row_independent and signature.rows is not None
    use = use_of(known, reference, capacity.slice_elements if sliced else None, gradients=gradients)
    share = fitting_share(signature, use, capacity, sliced=sliced, gradients=gradients, limit=None, contexts=2)
    if share is None:
        pytest.fail("a part of each of these fits")

    def fits(parts: int) -> bool:
        """With rows left out by hand."""

        def fewer(spec: TensorSpec) -> TensorSpec:
            return TensorSpec((max(1, spec.shape[0] // parts), *spec.shape[1:]), spec.dtype) if spec.shape else spec

        part = replace(
            signature,
            inputs=tuple(fewer(value) if isinstance(value, TensorSpec) else value for value in signature.inputs),
            outputs=tuple(map(fewer, signature.outputs)),
            weights=tuple((name, fewer(spec)) for name, spec in signature.weights),
        )
        some = use.share(parts)
        plan = draft_plan(
            part, some, capacity, sliced=sliced, gradients=gradients, limit=None, contexts=2, candidates=1
        )
        return plan.fits

    parts = int(share.removeprefix("1/"))
    assert fits(parts)
    assert parts == 1 or not fits(parts // 2)


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
    assert (small.fits, small.lean) == (False, True)
    assert small.scale in ("1/8", "1/16")


def test_inputs_that_preludes_write_are_counted_where_they_are_kept(problems: dict[str, Problem]) -> None:
    """Of a norm on half a GiB they are, and upstream gradients beside them."""

    def plans(problem: str, input_bytes: int) -> list[int]:
        reference = Reference(problems[problem], "full", "float32", CpuDevice())
        capacity = cuda_capacity(80 * _GIB)
        # A reference that takes nothing, so that what is drawn and kept decides.
        use = Use(input_bytes, 0, 0, 0, 0)
        return [
            draft_plan(
                reference.signature,
                use,
                capacity,
                sliced=True,
                gradients=gradients,
                limit=None,
                contexts=2,
                candidates=1,
            ).judge_bytes
            for gradients in (False, True)
        ]

    (half,) = (spec.size_bytes for spec in _signature(problems["rms_norm"]).input_tensors)
    whole = sum(spec.size_bytes for spec in _signature(problems["softmax"]).input_tensors)
    forward, training = plans("rms_norm", half)
    assert training - forward > 2 * half, "inputs and upstream gradients are kept, once more each"
    forward, training = plans("softmax", whole)
    assert training - forward < whole + _GIB, "1 GiB of inputs are kept, and 2 GiB with gradients are not"


def _signature(problem: Problem) -> Signature:
    return Reference(problem, "full", "float32", CpuDevice()).signature


def test_a_reference_that_fails_has_no_plan_and_the_next_one_has(tmp_path: Path, problems: dict[str, Problem]) -> None:
    folder = _folder(tmp_path, "print('to nobody')")
    wanted = [(load_problem(folder), "full", "float32"), (problems["relu"], "smoke", "float32")]
    failing, right = plan_each(wanted, 80 * _GIB)
    assert not failing.fits
    assert failing.planned_bytes is None
    assert "not on any device" in failing.message
    assert right.fits


@pytest.mark.parametrize("module", ["os._exit(7)", "raise SystemExit(7)", "os.kill(os.getpid(), 9)"])
def test_a_reference_that_ends_the_planner_is_at_fault_alone(
    module: str, tmp_path: Path, problems: dict[str, Problem]
) -> None:
    wanted = [(load_problem(_folder(tmp_path, module)), "full", "float32"), (problems["relu"], "smoke", "float32")]
    ending, right = plan_each(wanted, 80 * _GIB)
    assert ending.planned_bytes is None
    assert any(number in ending.message for number in ("7", "-9"))
    assert right.fits


def test_what_a_reference_prints_is_no_answer(tmp_path: Path, problems: dict[str, Problem]) -> None:
    printing = _folder(tmp_path, "print('{}', flush=True)\nos.system('echo no json')")
    wanted = [(load_problem(printing), "full", "float32"), (problems["relu"], "smoke", "float32")]
    failing, right = plan_each(wanted, 80 * _GIB)
    assert "not on any device" in failing.message
    assert right.fits


def _folder(parent: Path, module: str) -> Path:
    """A problem whose reference does this as it is executed, and fails when it is called."""
    folder = parent / "odd"
    folder.mkdir()
    (folder / "reference.py").write_text(_SOURCE.format(module=module))
    (folder / "problem.toml").write_text('title = "T"\ndescription = "D"\n[sizes.full]\n')
    return folder
