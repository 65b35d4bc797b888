"""Large tensors whose rows do not influence each other: what the judge computes slice by slice, and what not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from evaluator.candidates.candidate import Candidate, parse_candidate
from evaluator.config import EvalConfig, SamplingPlan
from evaluator.engine import Engine
from evaluator.errors import DoesNotFit
from evaluator.evaluation import Gradients, Verdict
from evaluator.judge.correctness.fingerprint import Fingerprinter
from evaluator.judge.device.cpu import CpuDevice
from evaluator.judge.memory_plan import MemoryPlan, plan_memory
from evaluator.judge.reference_memory import Use
from evaluator.judge.signature import Signature
from evaluator.problems.loading import load_problem
from evaluator.problems.problem import Problem
from evaluator.protocol.shared_memory import TensorSpec

# Two slices on a CPU, of 511 rows and of 2. A row of bytes is no whole number of words, so neither is where they meet.
REFERENCE = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns))

    def forward(self, x, mask, factor):
        y = torch.where(mask, x * factor, x) * self.weight
        return y, x.argmax(dim=1), y > 0


rows, columns = 513, 16411


def get_inputs():
    return [torch.randn(rows, columns), torch.rand(rows, columns) < 0.5, 3.0]


def get_init_inputs():
    return []
"""
MANIFEST = 'title = "T"\ndescription = "D"\n[sizes.full]\n[reference]\nrow_independent = true\n'
CANDIDATE = """\
import torch
from model import Model


class ModelNew(Model):
    def forward(self, x, mask, factor):
        y, at, positive = super().forward(x, mask, factor)
        {change}
        return y, at, positive
"""


@pytest.fixture
def problem(tmp_path: Path) -> Problem:
    folder = tmp_path / "large"
    folder.mkdir()
    (folder / "reference.py").write_text(REFERENCE)
    (folder / "problem.toml").write_text(MANIFEST)
    return load_problem(folder)


@pytest.mark.parametrize(
    ("change", "verdict", "gradients", "said"),
    [
        ("pass", Verdict.PASSED, Gradients.MATCH, ""),
        ("at[-1] += 1", Verdict.WRONG_OUTPUT, None, "output 1 differs from the reference: at [512]"),
        ("positive[-1, 3] ^= True", Verdict.WRONG_OUTPUT, None, "output 2 differs from the reference: at [512, 3]"),
        ("y = torch.cat([y[:-1], y[-1:].detach()])", Verdict.WRONG_GRADIENT, Gradients.MISMATCH, "at [512, "),
    ],
)
def test_every_kind_of_argument_and_output_is_judged_in_slices(
    change: str, verdict: Verdict, gradients: Gradients | None, said: str, cpu_engine: Engine, problem: Problem
) -> None:
    candidate = parse_candidate(code=CANDIDATE.format(change=change))
    assert isinstance(candidate, Candidate)
    plan = SamplingPlan(trials=1, gradient_trials=1, max_samples=0)
    evaluation = cpu_engine.evaluate(problem, candidate, EvalConfig(sampling=plan))
    assert evaluation.verdict is verdict, evaluation.message
    assert gradients in (None, evaluation.gradients)
    assert said in evaluation.message


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.float16, torch.float32])
def test_a_fingerprint_is_the_same_wherever_rows_begin(dtype: torch.dtype) -> None:
    fingerprints = Fingerprinter(torch.Generator().manual_seed(1))
    tensor = torch.arange(7 * 33).remainder(5).view(7, 33).to(dtype)
    for row in range(7):
        assert fingerprints.of(tensor[row:]) == fingerprints.of(tensor[row:].clone())


def test_fingerprints_that_are_asked_for_together_are_those_of_each() -> None:
    fingerprints = Fingerprinter(torch.Generator().manual_seed(1))
    generator = torch.Generator().manual_seed(2)
    sizes = (0, 3, 2**17 * 4, 2**19 + 5, 1)
    tensors = [torch.randint(256, (size,), generator=generator, dtype=torch.uint8) for size in sizes]
    together = fingerprints.of_each(tensors)
    assert together == [fingerprints.of(tensor) for tensor in tensors]
    assert len(set(together)) == len(sizes)
    assert fingerprints.of_each([]) == []


def signature(*shapes: tuple[int, ...], output: tuple[int, ...]) -> Signature:
    inputs = tuple(TensorSpec(shape, "float32") for shape in shapes)
    return Signature(
        (*inputs, {"value": 3}), (TensorSpec(output, "float32"),), (), (), differentiable=False, products=False
    )


def test_rows_are_what_all_tensors_have_as_many_of() -> None:
    assert signature((8, 3), (8,), output=(8, 1, 2)).rows == 8
    for shapes, output in (([(8, 3)], (3, 8)), ([(8, 3), (3,)], (8, 3)), ([(8, 3), ()], (8, 3)), ([], (8, 3))):
        assert signature(*shapes, output=output).rows is None


class Roomy(CpuDevice):
    """A machine on which anything fits."""

    def total_bytes(self) -> int:
        return 2**40

    def free_bytes(self) -> int:
        return 2**40


@pytest.fixture(scope="module")
def device() -> CpuDevice:
    found = Roomy()
    found.note_idle()
    return found


def planned(wanted: Signature, device: CpuDevice, limit: int | None = None) -> MemoryPlan:
    sizes = [spec.size_bytes for spec in wanted.tensors]
    cut = wanted.slices(device.slice_elements)[0]
    parts = 1 if cut is None or wanted.rows is None else wanted.rows / (cut[1] - cut[0])
    outputs = sum(spec.size_bytes for spec in wanted.outputs)
    use = Use(max(sizes), outputs, int(outputs / parts), int(2 * outputs / parts), int(2 * max(sizes) / parts))
    return plan_memory(
        wanted, use, device.capacity(), sliced=True, gradients=False, limit=limit, contexts=2, candidates=1
    )


def test_the_reference_takes_what_a_slice_takes(device: CpuDevice) -> None:
    one = planned(signature((256, 2**15), output=(256, 2**15)), device)
    many = signature((4096, 2**15), output=(4096, 2**15))
    in_slices, inputs = planned(many, device), many.input_tensors[0].size_bytes
    assert in_slices.judge_bytes - one.judge_bytes < 1.5 * inputs, "the inputs that are drawn, and no more slices"
    # A row is the least that a slice can be, and what has no rows in common cannot be sliced.
    few = planned(signature((8, 2**24), output=(8, 2**24)), device)
    assert few.judge_bytes > in_slices.judge_bytes
    other = replace(many, outputs=(TensorSpec((2**15, 4096), "float32"),))
    assert planned(other, device).judge_bytes > 8 * inputs
    with pytest.raises(DoesNotFit, match=r"for the reference.*about 1/\d+ of its bytes would fit"):
        planned(other, device, limit=2**33)


def test_what_waits_on_the_device_is_known_from_the_first_time_on(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Roomy()
    assert device.waiting_bytes == 0
    for foreign_bytes in (3 * 2**30, 5 * 2**30):
        monkeypatch.setattr(device, "foreign_bytes", lambda value=foreign_bytes: value)
        device.note_waiting(3)
        assert device.waiting_bytes == 2**30
