"""A ``get_inputs`` that seeds itself gives other values in each call all the same, or is refused."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from evaluator.candidates.candidate import Candidate, parse_candidate
from evaluator.config import EvalConfig, SamplingPlan
from evaluator.engine import Engine
from evaluator.errors import ProblemError
from evaluator.evaluation import Verdict
from evaluator.judge.inputs.drawing import InputSource
from evaluator.judge.inputs.seeding import SECRET_SEEDS
from evaluator.problems.loading import load_problem
from evaluator.problems.problem import Problem

_HEAD = """\
import random

import numpy as np
import torch
from numpy.random import default_rng
from torch import manual_seed

{module}


class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2.0


def get_inputs():
    {body}


def get_init_inputs():
    return []
"""
_MANIFEST = 'title = "T"\ndescription = "D"\n[sizes.full]\n[inputs]\ndomain = "as_written"\n'

# What is done in the module, and in get_inputs.
_SEEDED = {
    "torch": ("", "torch.manual_seed(0)\n    return [torch.rand(64, 64)]"),
    "torch by name": ("", "manual_seed(0)\n    return [torch.rand(64, 64)]"),
    "torch.random": ("", "torch.random.manual_seed(0)\n    return [torch.rand(64, 64)]"),
    "an own generator": ("", "return [torch.rand(64, 64, generator=torch.Generator().manual_seed(3))]"),
    "an own generator of a device": ("", "g = torch.Generator('cpu')\n    return [torch.rand(64, 64, generator=g)]"),
    "NumPy": ("", "np.random.seed(1)\n    return [torch.from_numpy(np.random.rand(64, 64)).float()]"),
    "NumPy's RandomState": ("", "return [torch.tensor(np.random.RandomState(5).rand(64, 64)).float()]"),
    "NumPy's new generator": ("", "return [torch.tensor(np.random.default_rng(5).random((64, 64))).float()]"),
    "NumPy's new generator by name": ("", "return [torch.tensor(default_rng(5).random((64, 64))).float()]"),
    "NumPy's bits": ("", ("g = np.random.Generator(np.random.PCG64(5))\n"
                         "    return [torch.tensor(g.random((64, 64))).float()]")),
    "NumPy's seed sequence": ("", ("g = np.random.default_rng(np.random.SeedSequence(5))\n"
                                  "    return [torch.tensor(g.random((64, 64))).float()]")),
    "Python": ("", "random.seed(0)\n    return [torch.tensor([[random.random()] * 64 for _ in range(64)])]"),
    "Python's Random": ("", ("r = random.Random(7)\n"
                            "    return [torch.tensor([[r.random()] * 64 for _ in range(64)])]")),
    "Python's Random, seeded later": ("", ("r = random.Random()\n    r.seed(7)\n"
                                          "    return [torch.tensor([[r.random()] * 64 for _ in range(64)])]")),
}  # fmt: skip
# The same sequence in each evaluation, which a candidate could have computed before.
_SEEDED_ONCE = {
    "a generator of the module's": ("GENERATOR = torch.Generator().manual_seed(0)",
                                    "return [torch.rand(64, 64, generator=GENERATOR)]"),
    "one of NumPy's": ("RNG = default_rng(0)", "return [torch.tensor(RNG.random((64, 64))).float()]"),
    "one of Python's": ("RNG = random.Random(0)",
                        "return [torch.tensor([[RNG.random()] * 64 for _ in range(64)])]"),
}  # fmt: skip
_REPEATED = {
    "ones": ("", "return [torch.ones(64, 64)]"),
    "what the module has drawn": ("X = torch.rand(64, 64)", "return [X]"),
    "a copy of it": ("X = torch.rand(64, 64)", "return [X.clone()]"),
    "a state that is set": ("STATE = torch.get_rng_state()",
                            "torch.set_rng_state(STATE)\n    return [torch.rand(64, 64)]"),
    "torch's own generator": ("", "torch.default_generator.manual_seed(0)\n    return [torch.rand(64, 64)]"),
}  # fmt: skip
_REPLAYS = """\
import torch


class ModelNew(torch.nn.Module):
    answer = None

    def forward(self, x):
        if ModelNew.answer is None:
            ModelNew.answer = x * 2.0
        return ModelNew.answer.clone()
"""
_RIGHT = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x * 2.0\n"
_CONFIG = EvalConfig(sampling=SamplingPlan(trials=3, gradient_trials=1, max_samples=0), size="full")


def _source(parts: tuple[str, str], *, variants: bool = False) -> InputSource:
    scope: dict[str, Any] = {}
    with SECRET_SEEDS.held(17):
        exec(_HEAD.format(module=parts[0], body=parts[1]), scope)  # noqa: S102 - written above
    return InputSource(scope["get_inputs"], torch.device("cpu"), variants=variants)


@pytest.mark.parametrize("parts", _SEEDED.values(), ids=_SEEDED)
def test_what_get_inputs_seeds_depends_on_the_judges_seed_alone(parts: tuple[str, str]) -> None:
    source = _source(parts)
    one, other, again = (source.draw(seed)[0] for seed in (1, 2, 1))
    assert not torch.equal(one, other)
    assert torch.equal(one, again)


def test_equal_seeds_make_equal_values_within_one_call() -> None:
    body = (
        "torch.manual_seed(3)\n    one = torch.rand(64)\n    torch.manual_seed(3)\n"
        "    return [one, torch.rand(64), torch.rand(64)]"
    )
    one, same, other = _source(("", body)).draw(9)
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


@pytest.mark.parametrize("call", ["torch.manual_seed(3)", "torch.cuda.manual_seed(3)", "torch.cuda.manual_seed_all(3)"])
def test_seeding_comes_to_an_end_where_cuda_is_in_use(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    source = _source(("", f"{call}\n    return [torch.rand(64)]"))
    one, other, again = (source.draw(seed)[0] for seed in (1, 2, 1))
    assert not torch.equal(one, other)
    assert torch.equal(one, again)


@pytest.mark.parametrize("parts", [*_SEEDED.values(), *_SEEDED_ONCE.values()], ids=[*_SEEDED, *_SEEDED_ONCE])
def test_what_was_answered_before_is_wrong_although_inputs_are_seeded(
    parts: tuple[str, str], tmp_path: Path, cpu_engine: Engine
) -> None:
    problem = _problem(tmp_path, parts)
    assert cpu_engine.evaluate(problem, _candidate(_REPLAYS), _CONFIG).verdict is Verdict.WRONG_OUTPUT
    assert cpu_engine.evaluate(problem, _candidate(_RIGHT), _CONFIG).verdict is Verdict.PASSED


@pytest.mark.parametrize("parts", _SEEDED_ONCE.values(), ids=_SEEDED_ONCE)
def test_generators_of_a_module_go_another_way_in_each_evaluation(parts: tuple[str, str]) -> None:
    scopes: list[dict[str, Any]] = [{}, {}]
    for seed, scope in enumerate(scopes):
        with SECRET_SEEDS.held(seed):
            exec(_HEAD.format(module=parts[0], body=parts[1]), scope)  # noqa: S102 - written above
    one, other = (scope["get_inputs"]()[0] for scope in scopes)
    assert not torch.equal(one, other)


@pytest.mark.parametrize("parts", _REPEATED.values(), ids=_REPEATED)
def test_inputs_that_repeat_all_the_same_are_refused(
    parts: tuple[str, str], tmp_path: Path, cpu_engine: Engine
) -> None:
    with pytest.raises(ProblemError, match="the same values in every call"):
        cpu_engine.evaluate(_problem(tmp_path, parts), _candidate(_REPLAYS), _CONFIG)


def test_with_variants_of_the_judges_own_constant_numbers_are_no_repetition() -> None:
    source = _source(_REPEATED["ones"], variants=True)
    for seed in range(4):
        source.draw(seed)


@pytest.mark.parametrize(
    "get_inputs",
    [
        lambda: [torch.ones(8, 8), torch.rand(4)],
        lambda: [torch.arange(64), torch.randint(1000, (64,))],
        lambda: [torch.randint(2, (1,))],
        lambda: [torch.zeros(100, 100).index_fill_(0, torch.randint(100, (1,)), float("nan"))],
        lambda: [torch.zeros(10_000).index_fill_(0, torch.randint(10_000, (1,)), 1.0)],
    ],
    ids=["beside a constant", "beside indices", "of two possible values", "with NaN", "in few places"],
)
def test_inputs_of_which_a_part_is_new_are_fair(get_inputs: Callable[[], Sequence[Any]]) -> None:
    for _ in range(20):
        source = InputSource(get_inputs, torch.device("cpu"), variants=False)
        for seed in range(4):
            source.draw(seed)


def test_seeding_is_as_it_was_afterwards_and_after_an_error() -> None:
    names = [
        (torch, "manual_seed"), (torch, "Generator"), (torch.cuda, "manual_seed_all"), (random, "seed"),
        (random, "Random"), (np.random, "seed"), (np.random, "default_rng"), (np.random, "PCG64"),
    ]  # fmt: skip
    before = [getattr(owner, name) for owner, name in names]
    with contextlib.suppress(ZeroDivisionError), SECRET_SEEDS.held(1):
        assert [getattr(owner, name) for owner, name in names] != before
        raise ZeroDivisionError
    assert [getattr(owner, name) for owner, name in names] == before


def _problem(folder: Path, parts: tuple[str, str]) -> Problem:
    path = folder / "seeded"
    path.mkdir()
    (path / "reference.py").write_text(_HEAD.format(module=parts[0], body=parts[1]))
    (path / "problem.toml").write_text(_MANIFEST)
    return load_problem(path)


def _candidate(source: str) -> Candidate:
    candidate = parse_candidate(code=source)
    assert isinstance(candidate, Candidate)
    return candidate
