"""References that come with a request become problems, without being executed."""

from __future__ import annotations

from pathlib import Path

import pytest

from evaluator.errors import ProblemError
from evaluator.problems.loading import load_problem
from evaluator.problems.problem import Problem, Tolerance
from evaluator.problems.requested import REQUESTED, requested_problem

_REFERENCE = '''\
import torch
import torch.nn as nn


class Model(nn.Module):
    """
    Adds one.

    More about it.
    """

    def forward(self, x):
        return x + 1


def get_inputs():
    return [torch.rand(16, 32)]


def get_init_inputs():
    return []
'''


def test_equal_references_are_one_problem_and_others_are_another() -> None:
    first, again = requested_problem(_REFERENCE), requested_problem(_REFERENCE.replace("\n", "\r\n"))
    assert first == again
    assert first.id.startswith(REQUESTED)
    assert first.id != requested_problem(_REFERENCE.replace("x + 1", "x + 2")).id
    assert first.id != requested_problem(_REFERENCE, tolerances={"float32": Tolerance(1e-3, 1e-3)}).id
    assert first.id != requested_problem(_REFERENCE, row_independent=True).id


def test_a_reference_has_the_size_full_and_its_own_description() -> None:
    problem = requested_problem(_REFERENCE)
    assert problem.sizes == {"full": {}}
    assert problem.description == "Adds one."
    assert problem.sized_source("full") == _REFERENCE
    assert problem.default_size("cpu") == "full"
    assert Problem.from_dict(problem.to_dict()) == problem


def test_other_inputs_are_fair_only_where_all_are_drawn_unless_the_request_says_so() -> None:
    changed = _REFERENCE.replace("return [torch.rand(16, 32)]", "x = torch.rand(16, 16)\n    return [x @ x.T]")
    assert requested_problem(_REFERENCE).input_domain == "real"
    assert requested_problem(changed).input_domain == "as_written"
    assert requested_problem(changed, input_domain="real").input_domain == "real"


def test_a_product_of_a_thousand_factors_is_no_fault_of_ours() -> None:
    product = "torch.rand(1)" + " * 1" * 1500
    changed = _REFERENCE.replace("return [torch.rand(16, 32)]", f"x = {product}\n    return [x]")
    assert requested_problem(changed).input_domain == "as_written"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import torch\n", "it does not define Model, get_inputs, get_init_inputs"),
        ("class Model(:\n", "it does not parse"),
        ("\0", "it does not parse"),
        ("x = 1\n" * 100_000, "it has 600,000 bytes, and at most 300,000 are read"),
    ],
)
def test_a_source_in_another_form_is_refused_with_the_reason(source: str, said: str) -> None:
    with pytest.raises(ProblemError, match=said):
        requested_problem(source)


def test_nothing_of_a_reference_is_executed(tmp_path: Path) -> None:
    trace = tmp_path / "executed"
    requested_problem(f"open({str(trace)!r}, 'w')\n" + _REFERENCE)
    assert not trace.exists()


def test_no_folder_has_the_name_of_a_requested_problem(tmp_path: Path) -> None:
    folder = tmp_path / "reference_mine"
    folder.mkdir()
    (folder / "reference.py").write_text(_REFERENCE, encoding="utf-8")
    (folder / "problem.toml").write_text('title = "Mine"\ndescription = "Mine."\n[sizes.full]\n', encoding="utf-8")
    with pytest.raises(ProblemError, match="a problem's name cannot begin with reference_"):
        load_problem(folder)
