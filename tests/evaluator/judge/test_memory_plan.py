"""The planned memory of the judge beside the memory that it takes, for right results and for wrong ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from evaluator.evaluation import Gradients
from evaluator.judge import memory_plan, parts
from evaluator.judge.correctness.commitment import Commitment
from evaluator.judge.correctness.reference import Reference
from evaluator.judge.correctness.verify import CallFindings, Verifier
from evaluator.judge.footprint import Footprint
from evaluator.judge.inputs.drawing import Variant
from evaluator.judge.memory_plan import right_bytes, wrong_bytes
from evaluator.judge.reference_memory import use_of
from evaluator.problems.loading import load_problem
from evaluator.problems.problem import Problem
from evaluator.protocol.control_page import CallReport
from evaluator.protocol.shared_memory import Block
from tests.evaluator.verifying import constructed_reference, verifier_of

REFERENCE = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, {names}):
        return {body}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""
MANIFEST = 'title = "T"\ndescription = "D"\n[sizes.full]\n[reference]\n'
X = "torch.randn(512, 1024)"
INDEPENDENT = "row_independent = true"
# Statement of the constructor, arguments, result, inputs, how slices are possible, and the elements of one.
FORMS: dict[str, tuple[str, str, str, str, str, int | None]] = {
    "an activation": ("pass", "x", "torch.relu(x)", X, INDEPENDENT, 2**17),
    "a norm of each row": ("pass", "x", "x / x.square().mean(1, keepdim=True).sqrt()", X, INDEPENDENT, 2**17),
    "a softmax": ("pass", "x", "torch.softmax(x, 1)", X, INDEPENDENT, 2**17),
    "a norm of all": ("pass", "x", "x / x.norm()", X, "", None),
    "a batch norm": ("self.norm = nn.BatchNorm1d(1024)", "x", "self.norm(x)", X, "", None),
    "a loss": ("pass", "x, y", "(x - y).square().mean()", f"{X}, {X}", 'pooled = "mean"', 2**17),
    "a product": ("pass", "x, y", "x @ y", f"{X}, torch.randn(1024, 64)", "whole_inputs = [1]", 2**17),
    "large weights": ("self.fc = nn.Linear(1024, 512)", "x", "self.fc(x)", "torch.randn(16, 1024)", INDEPENDENT, 2**20),
    "layers": (
        "self.part = nn.Sequential(nn.Linear(64, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 8))",
        "x",
        "self.part(x)",
        "torch.randn(1024, 64)",
        INDEPENDENT,
        2**15,
    ),
}


def _problem(folder: Path, form: str) -> tuple[Problem, int | None]:
    init, names, body, inputs, slices, elements = FORMS[form]
    (folder / "reference.py").write_text(REFERENCE.format(init=init, names=names, body=body, inputs=inputs))
    (folder / "problem.toml").write_text(MANIFEST + slices + "\n")
    return load_problem(folder), elements


def _verify(
    reference: Reference, verifier: Verifier, blocks: dict[str, Block], change: Callable[[torch.Tensor], object]
) -> tuple[CallFindings, int]:
    """Verify a call with every gradient changed by ``change``; return the most bytes that it took as well."""
    values = reference.get_inputs()
    model, leaves = reference.constructed(values)
    output = model(*leaves)
    upstream = torch.randn_like(output)
    found = torch.autograd.grad(output, [*leaves, *model.parameters()], upstream)
    contents = {
        "inputs": values,
        "upstream": [upstream],
        "outputs": [output.detach()],
        "input_gradients": found[: len(leaves)],
        "weight_gradients": found[len(leaves) :],
    }
    for name, tensors in contents.items():
        for target, tensor in zip(blocks[name].tensors, tensors, strict=True):
            target.copy_(tensor)
            if name.endswith("gradients"):
                change(target)
    commitment = Commitment()
    for name in contents:
        verifier.commitments.commit(commitment, {name: blocks[name].tensors})
    count = len(reference.signature.weights)
    report = CallReport(device_ms=1.0, peak_bytes=0, present=(2 << len(found)) - 1, forward_ms=0.5)
    del values, model, leaves, output, upstream, found, contents
    with Footprint() as seen:
        found_out = verifier.verify_gradients(commitment, report, (1 << count) - 1, Variant.SIGNED, with_native=True)
    return found_out, seen.peak_bytes


def _nothing(_tensor: torch.Tensor) -> None:
    pass


def _all_wrong(tensor: torch.Tensor) -> None:
    tensor.mul_(1.01).add_(1e-3)


@pytest.mark.parametrize("form", FORMS)
def test_the_plan_is_an_upper_bound_and_close_to_it(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (parts, memory_plan):
        monkeypatch.setattr(module, "MOST_COMPARED", 2**16)
    problem, elements = _problem(tmp_path, form)
    reference = constructed_reference(problem, "full")
    verifier, blocks = verifier_of(reference, problem, elements, weights=True)
    # The run over all rows at once is made where there is memory for it.
    monkeypatch.setattr(verifier, "_native_of_all_rows", lambda *_given, **_options: None)
    signature = reference.signature
    use = use_of(problem, reference, elements, gradients=True)
    planned = wrong_bytes(signature, use, elements, gradients=True)
    assert right_bytes(signature, use, elements, gradients=True) <= planned
    peaks = [_verify(reference, verifier, blocks, change)[1] for change in (_nothing, _all_wrong)]
    assert max(peaks) <= planned
    assert planned <= 1.5 * max(peaks)


def test_what_is_compared_in_parts_is_told_as_if_it_were_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first wrong element is in the last part of a gradient, and of one that has a dimension of extent one."""
    (tmp_path / "reference.py").write_text(
        REFERENCE.format(
            init="self.weight = nn.Parameter(torch.rand(1, 40, 50))",
            names="x",
            body="x * self.weight",
            inputs="torch.randn(1, 40, 50)",
        )
    )
    (tmp_path / "problem.toml").write_text(MANIFEST)
    problem = load_problem(tmp_path)
    monkeypatch.setattr(parts, "MOST_COMPARED", 350)
    reference = constructed_reference(problem, "full")
    verifier, blocks = verifier_of(reference, problem, None, weights=True)

    def last(tensor: torch.Tensor) -> None:
        tensor.view(-1)[-3] += 1.0

    assert _verify(reference, verifier, blocks, _nothing)[0].gradients is Gradients.MATCH
    findings, _ = _verify(reference, verifier, blocks, last)
    assert "at [0, 39, 47]" in findings.message
    assert findings.tallies[1].wrong == 1
    assert findings.tallies[1].total == 40 * 50
