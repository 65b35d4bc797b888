"""Vetting: what the real judge lets through on problems that are odd in one way each."""

from __future__ import annotations

import json
import sys
import types
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from evaluator.candidates.candidate import Candidate, parse_candidate
from evaluator.config import EvalConfig, SamplingPlan
from evaluator.engine import Engine
from evaluator.errors import ProblemError
from evaluator.evaluation import Evaluation, Gradients, Verdict
from evaluator.problems.loading import load_problem, load_problems, save_vetting
from evaluator.problems.problem import Problem, Tolerance
from evaluator.problems.vetting import MEANING, NOT_VETTED, REFUSALS, Check, Inputs, Label, Vetting
from evaluator.problems.vetting.probes import (
    ABSENT_CONSTANTS,
    BACKWARD_PROBE,
    INITIAL_CONSTANTS,
    INITIAL_RELATIONS,
    ITSELF,
    NOISE_TIMES,
    PROBES,
    TF32,
    TRIVIAL,
    Trivial,
    source_of,
)
from evaluator.problems.vetting.run import vet

INIT_INPUTS = "\n\ndef get_init_inputs():\n    return []\n"
REPEATED = "def get_inputs():\n    return [torch.arange(512).remainder(7)]\n"
REFERENCE = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, x):
        {forward}


rows = 16


def get_inputs():
    return [torch.rand(rows, 32)]


def get_init_inputs():
    return []
"""
SQUARES = "return x * x - 0.5 * x"
RIGHT_FOR_POSITIVE = "return torch.sign(x) * x"
CANCELLED = "y = self.linear(x).amax(dim=1, keepdim=True)\n        return torch.relu(y - y.mean(dim=1, keepdim=True))"
LINEAR = "self.linear = nn.Linear(32, 8)"
DROPOUT_BACKWARD = """\
return Noisy.apply(x)


class Noisy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        return gradient * torch.rand_like(gradient)"""
MANIFEST = 'title = "T"\ndescription = "D"\n[sizes.full]\nrows = 64\n[sizes.smoke]\nrows = 16\n'
AS_WRITTEN = '[inputs]\ndomain = "as_written"\n'
REQUIRE = '[gradients]\npolicy = "require"\n'
NO_GRADIENTS = '[gradients]\npolicy = "none"\n'
TIGHT = "[tolerance]\nfloat32 = { atol = 1e-5, rtol = 1e-5 }\n"
LOOSE = "[tolerance]\nfloat32 = { atol = 1e-2, rtol = 1e-2 }\n"

ALWAYS_ZERO = {
    "zeros_pass",
    "constant_passes",
    "input_independent",
    "first_row_repeated_passes",
    "first_answer_passes",
    "half_passes",
    "zero_gradients_pass",
    "output_constant",
}
CASES = {
    "zero for all inputs, and gradients required": (LINEAR, CANCELLED, REQUIRE, ALWAYS_ZERO),
    "a mean of what was normalised": (
        "self.norm = nn.GroupNorm(4, 32, affine=False)",
        "return self.norm(x).mean(dim=1) + 0.3",
        TIGHT,
        {
            "constant_passes",
            "input_independent",
            "first_row_repeated_passes",
            "first_answer_passes",
            "gradient_limits_capped",
            "zero_gradients_pass",
        },
    ),
    "a mean of what was normalised and scaled": (
        "self.norm = nn.GroupNorm(4, 32)",
        "return self.norm(x).mean(dim=1)",
        "",
        set(),
    ),
    "nothing but positive numbers": ("", RIGHT_FOR_POSITIVE, AS_WRITTEN, {"identity_passes"}),
    "rows that are all the same": (
        "",
        "return x.mean(dim=0, keepdim=True).expand(x.shape) * 1.0",
        "",
        {"first_row_repeated_passes"},
    ),
    "dropout": ("self.dropout = nn.Dropout(0.5)", "return self.dropout(x)", NO_GRADIENTS, {"nondeterministic"}),
    "noise below the tolerance": ("", "return x * x + 1e-7 * torch.rand_like(x)", "", {"rounding_varies"}),
    "noise in the backward pass": ("", DROPOUT_BACKWARD, "", {"backward_nondeterministic"}),
    "batch norm in training": (
        "self.norm = nn.BatchNorm1d(32)",
        "return self.norm(x)",
        "",
        {"keeps_state"},
    ),
    "an average over calls": (
        "self.before = torch.zeros(())",
        "with torch.no_grad():\n            self.before = self.before + x.mean()\n        return x * self.before",
        "",
        {"output_drifts"},
    ),
    # Of rows of 32 numbers, half precision keeps the order too often.
    "argsort": ("", "return torch.argsort(x.view(2, 256), dim=1, stable=True)", "", {"no_gradient"}),
    "sign": (
        "",
        "return torch.sign(x)",
        "",
        {
            "zero_gradients_pass",
            "half_passes",
            "constant_passes_on_given_inputs",
            "input_independent_on_given_inputs",
            "first_row_repeated_passes_on_given_inputs",
            "first_answer_passes_on_given_inputs",
        },
    ),
    "the same for all inputs": (
        "",
        "return x - x + torch.arange(32, dtype=x.dtype, device=x.device)",
        "",
        {
            "output_constant",
            "input_independent",
            "first_answer_passes",
            "first_row_repeated_passes",
            "half_passes",
            "zero_gradients_pass",
        },
    ),
    "a tolerance that means nothing": (
        "",
        "return -3.0 * x",
        "[tolerance]\nfloat32 = { atol = 0.6, rtol = 0.6 }\n",
        {"scaled_answer_passes", "ordinary_elements_left_out", "half_passes"},
    ),
    "a norm that is initialised as usual": ("self.norm = nn.LayerNorm(32)", "return self.norm(x)", "", set()),
    "a loose tolerance": ("", "return 3.0 * x", LOOSE, {"half_passes"}),
    "an exception": ("", "raise ValueError('not today')", "", {"reference_fails"}),
    "an exception for what is not given": (
        "",
        "if not x.is_meta and bool((x < 0).any()):\n            raise ValueError('negative')\n        return x * x",
        "",
        {"reference_fails"},
    ),
    "a fixed dtype": (LINEAR, "return self.linear(x.float())", "", {"reference_fails"}),
    "a backward pass that fails": ("", "y = torch.relu(x)\n        y += 1\n        return y", "", {"backward_fails"}),
    "an input that is changed": ("", "return x.detach().mul_(2.0)", NO_GRADIENTS, {"reference_does_not_pass"}),
}
SAID = {
    "an exception": "not today",
    "an exception for what is not given": "the reference fails in its forward pass: ValueError: negative",
    "a fixed dtype": "in float64, RuntimeError",
    "a backward pass that fails": "modified by an inplace operation",
    "dropout": "differ by up to",
    "batch norm in training": "a call changes norm.running_mean, norm.running_var, norm.num_batches_tracked",
    "an average over calls": "what later calls on the same input return differs by",
    "an input that is changed": "was changed by the candidate",
}


def make(root: Path, init: str = "pass", forward: str = SQUARES, manifest: str = "", *, name: str = "odd") -> Path:
    folder = root / name
    folder.mkdir()
    (folder / "reference.py").write_text(REFERENCE.format(init=init, forward=forward))
    (folder / "problem.toml").write_text(MANIFEST + manifest)
    return folder


def vetting_of(problem: Problem, *labels: Label) -> Vetting:
    refusals = tuple(REFUSALS[label] for label in labels if label in REFUSALS)
    check = Check("zeros", Inputs.ALL, Verdict.PASSED, Gradients.MISSING, "")
    lost = Check("itself", Inputs.GIVEN, None, Gradients.NOT_CHECKED, "the reference fails")
    where = {"device": "cpu", "size": "smoke", "precision": "float32", "torch": "2.9"}
    return Vetting(problem.id, problem.version, **where, labels=labels, refusals=refusals, checks=(check, lost))


# --- what the judge lets through -------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_what_is_odd_about_a_problem_is_found(case: str, tmp_path: Path, cpu_engine: Engine) -> None:
    init, forward, manifest, expected = CASES[case]
    problem = load_problem(make(tmp_path, init or "pass", forward, manifest))
    vetting = vet(problem, cpu_engine, "cpu", "smoke")
    assert {str(label) for label in vetting.labels} == expected, vetting.checks
    assert vetting.refused == any(label in REFUSALS for label in vetting.labels)
    assert SAID.get(case, "") in " ".join([*vetting.refusals, *(check.message for check in vetting.checks)])
    assert (vetting.problem, vetting.version, vetting.size) == ("odd", problem.version, "smoke")
    assert vetting.torch == cpu_engine.environment["torch"]


def test_inputs_that_repeat_are_found(tmp_path: Path, cpu_engine: Engine) -> None:
    folder = make(tmp_path, forward="return x * 2.0")
    source = (folder / "reference.py").read_text()
    (folder / "reference.py").write_text(source.partition("def get_inputs")[0] + REPEATED + INIT_INPUTS)
    vetting = vet(load_problem(folder), cpu_engine, "cpu", "smoke")
    assert (vetting.labels, vetting.refused) == ((Label.INPUTS_REPEAT,), True), vetting.checks


def test_checks_are_kept_with_verdicts_and_reported_as_they_are_made(tmp_path: Path, cpu_engine: Engine) -> None:
    reported: list[tuple[str, int, int]] = []
    problem = load_problem(make(tmp_path, forward=RIGHT_FOR_POSITIVE))
    vetting = vet(problem, cpu_engine, "cpu", "smoke", lambda *step: reported.append(step))
    assert [name for name, _, _ in reported] == [check.name for check in vetting.checks]
    assert all(number < most for _, number, most in reported)
    found = {(check.name, str(check.inputs)): check for check in vetting.checks}
    assert found["identity", "given"].verdict is Verdict.PASSED
    assert found["identity", "all"].verdict is Verdict.WRONG_OUTPUT
    assert "inputs: mixed" in found["identity", "all"].message
    assert ("zeros", "all") not in found, "what fails on the given inputs fails on all"
    assert found["float16", "all"].verdict is found["bfloat16", "all"].verdict is Verdict.WRONG_OUTPUT
    assert found["zero gradients", "all"].verdict is Verdict.WRONG_GRADIENT
    assert vetting.labels == (Label.IDENTITY_PASSES_ON_GIVEN_INPUTS,)


class LenientJudge:
    """Lets the reference pass, what looks at it, and the candidates called ``lets_pass``; on ``given`` inputs alone, if
    that is said."""

    environment: ClassVar = {"torch": "2.9"}

    def __init__(self, *lets_pass: str, given: bool = False, details: dict[str, Any] | None = None) -> None:
        self._lets_pass = {*PROBES, BACKWARD_PROBE, ITSELF}, set(lets_pass)
        self._given = given
        self._details = details or {}
        self.precisions: set[str] = set()

    def evaluate(self, problem: Problem, candidate: Candidate, config: EvalConfig) -> Evaluation:
        self.precisions.add(config.precision)
        always, names = self._lets_pass
        bodies = {source_of(name, problem, config.precision): name for name in (*always, *names)}
        name = bodies.get(candidate.source)
        right = name in always or (name is not None and (config.given_inputs_only or not self._given))
        verdict = Verdict.PASSED if right else Verdict.WRONG_OUTPUT
        where = {"problem": problem.id, "problem_version": problem.version, "device": "cpu", "size": config.size}
        details = self._details if name == ITSELF else {}
        return Evaluation(verdict, "", precision=config.precision, details=details, **where)


@pytest.mark.parametrize("trivial", TRIVIAL, ids=lambda trivial: trivial.name)
def test_what_the_judge_lets_pass_has_its_label(trivial: Trivial, tmp_path: Path) -> None:
    problem = load_problem(make(tmp_path))
    assert vet(problem, LenientJudge(), "cpu", "smoke").labels == ()
    found = vet(problem, LenientJudge(trivial.name), "cpu", "smoke")
    assert (found.labels, found.refused) == ((trivial.passes,), True)
    found = vet(problem, LenientJudge(trivial.name, given=True), "cpu", "smoke")
    assert (found.labels, found.refused) == ((trivial.passes_on_given_inputs,), False)


def test_noise_is_of_the_size_that_the_judge_settled(tmp_path: Path) -> None:
    problem = load_problem(make(tmp_path))
    stated = asdict(problem.tolerance("float32"))
    settled = {"atol": 2e-3, "rtol": 3e-3}
    judge = LenientJudge(details={"tolerances": {"stated": stated, "outputs": [stated, settled], "gradients": stated}})
    asked: list[str] = []
    evaluate = judge.evaluate
    judge.evaluate = lambda problem, candidate, config: (  # type: ignore[method-assign]
        asked.append(candidate.source),
        evaluate(problem, candidate, config),
    )[1]
    vet(problem, judge, "cuda", "smoke")
    wider = [source_of(trivial.name, problem, "float32", Tolerance(**settled)) for trivial in TRIVIAL]
    assert set(wider) <= set(asked)
    assert wider != [source_of(trivial.name, problem, "float32") for trivial in TRIVIAL]
    assert source_of(TF32, problem, "float32", Tolerance(**settled)) not in asked, "the reference has it as well"


@pytest.mark.parametrize(
    ("name", "label"),
    [
        (INITIAL_CONSTANTS, Label.CONSTANT_PARAMETERS_LEFT_OUT),
        (ABSENT_CONSTANTS, Label.CONSTANT_PARAMETERS_LEFT_OUT),
        (INITIAL_RELATIONS, Label.RELATIONS_COUNTED_ON),
    ],
)
def test_parameters_that_are_always_the_same_or_related_may_be_told_to_be_left_out(
    tmp_path: Path, name: str, label: Label
) -> None:
    found = vet(load_problem(make(tmp_path)), LenientJudge(name), "cpu", "smoke")
    assert (found.labels, found.refused) == ((label,), False)


@pytest.mark.parametrize(
    ("inputs", "labelled"),
    [
        ({"same": ["input 1"]}, True),
        ({"related": ["input 0"], "varied": ["input 1"]}, True),
        ({"varied": ["input 1"]}, False),
    ],
)
def test_inputs_that_repeat_and_are_not_varied_have_a_label(
    tmp_path: Path, inputs: dict[str, list[str]], *, labelled: bool
) -> None:
    found = vet(load_problem(make(tmp_path)), LenientJudge(details={"inputs": inputs}), "cpu", "smoke")
    assert (found.labels, found.refused) == ((Label.INPUTS_COUNTED_ON,) if labelled else (), False)


@pytest.mark.parametrize(
    ("inputs", "manifest", "told"),
    [
        ("torch.rand(rows, 32), torch.arange(32) < 20", "", {"varied": ["input 1"]}),
        ("torch.rand(rows, 32), torch.arange(32) < 20", AS_WRITTEN, {"same": ["input 1"]}),
        ("torch.rand(rows, 32), torch.arange(32)", "", {"same": ["input 1"]}),
        ("torch.rand(rows, 32), torch.zeros(1, dtype=torch.bool)", "", {"varied": ["input 1"]}),
        ("torch.rand(rows, 32), torch.randint(9, (32,))", AS_WRITTEN, {}),
        ("nn.functional.normalize(torch.rand(rows, 32)), torch.rand(32)", AS_WRITTEN, {"related": ["input 0"]}),
        ("nn.functional.normalize(torch.rand(rows, 32)), torch.rand(32)", "", {}),
    ],
    ids=["mask", "mask as written", "integers", "flag", "drawn", "of length one", "of any length"],
)
def test_inputs_that_may_be_counted_on_are_told(
    tmp_path: Path, cpu_engine: Engine, inputs: str, manifest: str, told: dict[str, list[str]]
) -> None:
    forward = "return x * x - 0.5 * x + by.to(x.dtype)"
    assert details_of_inputs(tmp_path, cpu_engine, forward, inputs, manifest) == told


def test_a_mask_that_leaves_the_reference_less_finite_is_not_varied(tmp_path: Path, cpu_engine: Engine) -> None:
    inputs = "torch.rand(rows, 32), torch.ones(32, dtype=torch.bool)"
    assert details_of_inputs(tmp_path, cpu_engine, "return x / by.to(x.dtype)", inputs) == {"same": ["input 1"]}


def details_of_inputs(
    tmp_path: Path, engine: Engine, forward: str, inputs: str, manifest: str = ""
) -> dict[str, list[str]]:
    """What the judge says of the inputs of a reference that takes two, in an evaluation of itself."""
    folder = make(tmp_path, forward=forward, manifest=manifest)
    source = (folder / "reference.py").read_text().replace("forward(self, x)", "forward(self, x, by)")
    (folder / "reference.py").write_text(source.replace("torch.rand(rows, 32)]", f"{inputs}]"))
    problem = load_problem(folder)
    candidate = parse_candidate(code=source_of(ITSELF, problem, "float32"))
    assert isinstance(candidate, Candidate)
    sampling = SamplingPlan(trials=2, gradient_trials=1, max_samples=0)
    found = engine.evaluate(problem, candidate, EvalConfig(device="cpu", size="smoke", sampling=sampling))
    assert found.verdict is Verdict.PASSED, found.message
    told: dict[str, list[str]] = found.details.get("inputs", {})
    return told


def test_parameters_that_take_no_other_values_are_refused(tmp_path: Path) -> None:
    judge = LenientJudge(details={"parameters": {"constant": ["a", "b"], "fixed": ["b"], "unmoved": ["b"]}})
    found = vet(load_problem(make(tmp_path)), judge, "cpu", "smoke")
    assert found.labels == (Label.CONSTANT_PARAMETERS_UNMOVED,)
    assert found.refusals == (f"{REFUSALS[Label.CONSTANT_PARAMETERS_UNMOVED]} (b)",)


@pytest.mark.parametrize(
    ("init", "related"),
    [
        ("self.w = nn.Parameter(nn.init.orthogonal_(torch.empty(32, 32)))", {"w", "norm.weight"}),
        ("self.w = nn.Parameter(nn.functional.normalize(torch.randn(32, 8), dim=0))", {"w"}),
        (
            "self.l = nn.utils.parametrizations.weight_norm(nn.Linear(32, 8))",
            {f"l.parametrizations.weight.original{number}" for number in range(2)},
        ),
        (
            "self.l = nn.Linear(32, 8); self.m = nn.Linear(32, 8); self.m.load_state_dict(self.l.state_dict())",
            {"l.weight", "l.bias", "m.weight", "m.bias"},
        ),
    ],
    ids=["orthogonal", "of length one", "weight norm", "copied"],
)
def test_candidates_count_on_what_parameters_are_at_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, init: str, related: set[str]
) -> None:
    """Constants are no parameters any more, and what is related stays what it was constructed with."""
    init = f"self.norm = nn.LayerNorm(32); {init}"
    problem = load_problem(
        make(tmp_path, init, "return sum(x.mean() * p.sum() for p in self.parameters()) + self.norm(x)")
    )
    reference = types.ModuleType("model")
    exec(problem.source, reference.__dict__)  # noqa: S102 - written above
    monkeypatch.setitem(sys.modules, "model", reference)

    def made(name: str) -> Any:
        candidate: dict[str, Any] = {"__name__": "candidate"}
        exec(source_of(name, problem, "float32"), candidate)  # noqa: S102 - our own
        torch.manual_seed(0)
        return candidate["ModelNew"]()

    names = {name for name, _ in made("itself").named_parameters()}
    absent = made(ABSENT_CONSTANTS)
    assert names - {name for name, _ in absent.named_parameters()} == {"norm.weight", "norm.bias"}
    x = torch.randn(4, 32)
    assert absent(x).shape == x.shape
    model = made(INITIAL_RELATIONS)
    assert set(model.first) == related
    first = model(x)
    with torch.no_grad():
        for name in model.first:
            model.get_parameter(name).mul_(2.0)
    assert torch.equal(model(x), first)


def test_what_is_drawn_freely_is_not_counted_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = load_problem(make(tmp_path, LINEAR, "return self.linear(x)"))
    reference = types.ModuleType("model")
    exec(problem.source, reference.__dict__)  # noqa: S102 - written above
    monkeypatch.setitem(sys.modules, "model", reference)
    candidate: dict[str, Any] = {"__name__": "candidate"}
    exec(source_of(INITIAL_RELATIONS, problem, "float32"), candidate)  # noqa: S102 - our own
    with pytest.raises(ValueError, match="related"):
        candidate["ModelNew"]()


def test_a_precision_at_which_the_reference_is_too_inexact_is_refused(tmp_path: Path) -> None:
    problem = load_problem(make(tmp_path))
    widened = {"tolerance_widened": {"the output": 9.0}}
    few = {"tolerance_capped": {"the output": 0.02}}
    for details, labels in (
        (widened, ()),
        (few, ()),
        ({"tolerance_capped": {"the output": 0.38}}, (Label.LIMITS_CAPPED,)),
    ):
        judge = LenientJudge(details=details)
        found = vet(problem, judge, "cpu", "smoke", precision="bfloat16")
        assert (found.labels, found.precision, judge.precisions) == (labels, "bfloat16", {"bfloat16"})
        assert found.refusals == tuple(f"{REFUSALS[label]} (the output, 38 % of the elements)" for label in labels)


def test_gradients_alone_that_are_too_inexact_are_told(tmp_path: Path) -> None:
    judge = LenientJudge(details={"tolerance_capped": {"the gradient of input 0": 0.38}})
    found = vet(load_problem(make(tmp_path)), judge, "cpu", "smoke", precision="float16")
    assert (found.labels, found.refused) == ((Label.GRADIENT_LIMITS_CAPPED,), False)


def test_kinds_of_inputs_that_say_nothing_are_told(tmp_path: Path) -> None:
    problem = load_problem(make(tmp_path))
    for share, labels in ((0.9, ()), (0.1, (Label.SILENT_INPUTS,))):
        judge = LenientJudge(details={"telling_share": {"the output": {"sign-mixed": 1.0, "wide-ranged": share}}})
        found = vet(problem, judge, "cpu", "smoke")
        assert (found.labels, found.refused) == (labels, False)


def test_trivial_candidates_return_what_their_names_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = load_problem(make(tmp_path, LINEAR, "return self.linear(x).exp()"))
    reference = types.ModuleType("model")
    exec(problem.source, reference.__dict__)  # noqa: S102 - written above
    monkeypatch.setitem(sys.modules, "model", reference)
    x, y = torch.rand(16, 32), torch.rand(16, 32)

    def answers(name: str) -> list[torch.Tensor]:
        candidate: dict[str, Any] = {"__name__": "candidate"}
        exec(source_of(name, problem, "float32"), candidate)  # noqa: S102 - our own
        torch.manual_seed(0)
        model = candidate["ModelNew"]()
        torch.manual_seed(1)
        return [model(each).detach() for each in (x, y)]

    right, right_of_y = answers("itself")
    torch.testing.assert_close(answers("half of the answer")[0], 0.5 * right)
    torch.testing.assert_close(answers("one and a half of the answer")[0], 1.5 * right)
    assert torch.equal(answers("first answer")[1], right)
    limit = 1e-4 * right.square().mean().sqrt() + 1e-4 * right
    torch.testing.assert_close((answers("noise")[0] - right).abs(), NOISE_TIMES * limit, rtol=0.01, atol=1e-6)
    left = answers("no ordinary elements")[0]
    assert set(left[right <= right.median()].tolist()) <= {0.0, *right[right >= right.square().mean().sqrt()].tolist()}
    assert torch.equal(left[right > right.median()], right[right > right.median()])
    with pytest.raises(ValueError, match="no parameter is always the same"):
        answers(INITIAL_CONSTANTS)
    assert not torch.equal(right, right_of_y)


def test_the_judge_can_be_kept_to_given_inputs_and_to_verifying(cpu_engine: Engine, tmp_path: Path) -> None:
    problem = load_problem(make(tmp_path, forward=RIGHT_FOR_POSITIVE))
    candidate = parse_candidate(
        code="import torch\nclass ModelNew(torch.nn.Module):\n    forward = lambda self, x: x\n"
    )
    assert isinstance(candidate, Candidate)
    verify_only = SamplingPlan(max_samples=0)
    for given_inputs_only, verdict in ((True, Verdict.PASSED), (False, Verdict.WRONG_OUTPUT)):
        config = EvalConfig(size="smoke", given_inputs_only=given_inputs_only, sampling=verify_only)
        evaluation = cpu_engine.evaluate(problem, candidate, config)
        assert evaluation.verdict is verdict, evaluation.message
        assert (evaluation.speedup, evaluation.samples) == (None, {})
        assert "sampling" not in evaluation.stage_s


def test_a_probe_puts_a_model_of_integers_alone_where_its_inputs_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = load_problem(make(tmp_path, "self.table = nn.Embedding(9, 4)", "return self.table(x)"))
    reference = types.ModuleType("model")
    exec(problem.source, reference.__dict__)  # noqa: S102 - written above
    monkeypatch.setitem(sys.modules, "model", reference)
    probe: dict[str, Any] = {"__name__": "candidate"}
    exec(source_of("repeated", problem, "float32"), probe)  # noqa: S102 - our own
    model = probe["ModelNew"]().half().to("meta")
    (weight,) = model.fresh([torch.zeros(3, dtype=torch.int64, device="meta"), 7]).parameters()
    assert (weight.device.type, weight.dtype) == ("meta", torch.float16)


# --- what a problem carries ------------------------------------------------------------------------------------------


def test_a_vetting_survives_json(tmp_path: Path) -> None:
    vetting = vetting_of(load_problem(make(tmp_path)), Label.ZEROS_PASS, Label.HALF_PASSES)
    assert Vetting.from_dict(json.loads(json.dumps(vetting.to_dict()))) == vetting


def test_a_vetting_refuses_exactly_where_a_label_does(tmp_path: Path) -> None:
    vetting = vetting_of(load_problem(make(tmp_path)), Label.ZEROS_PASS)
    with pytest.raises(ValueError, match="refusals"):
        replace(vetting, refusals=())
    with pytest.raises(ValueError, match="refusals"):
        replace(vetting, labels=(Label.HALF_PASSES,))


def test_a_saved_vetting_is_read_with_its_problem_and_changes_neither_version_nor_definition(tmp_path: Path) -> None:
    folder = make(tmp_path)
    before = load_problem(folder)
    assert (before.labels, before.refusal, before.stale) == (None, NOT_VETTED, False)
    vetting = vetting_of(before, Label.ZEROS_PASS, Label.HALF_PASSES)
    assert save_vetting(folder, vetting) == folder / "vetting.json"
    problem = load_problem(folder)
    assert problem.vettings == (vetting,)
    assert (problem.version, problem.to_dict()) == (before.version, before.to_dict())
    assert problem.labels == (Label.ZEROS_PASS, Label.HALF_PASSES)
    assert problem.refusal == REFUSALS[Label.ZEROS_PASS]
    record = problem.to_record()
    assert (record["labels"], record["ranked"]) == (["zeros_pass", "half_passes"], False)
    assert record["refusal"] == problem.refusal
    assert record["vetting"] == {
        "version": before.version, "device": "cpu", "size": "smoke", "precision": "float32", "torch": "2.9",
        "stale": False,
    }  # fmt: skip


def test_vettings_at_several_precisions_and_devices_are_kept_side_by_side(tmp_path: Path) -> None:
    folder = make(tmp_path)
    first = vetting_of(load_problem(folder), Label.HALF_PASSES)
    half = replace(first, precision="float16", labels=(Label.ZEROS_PASS,), refusals=(REFUSALS[Label.ZEROS_PASS],))
    other_device = replace(first, device="cuda", labels=(Label.TF32_PASSES,))
    for each in (first, half, other_device, replace(first, version="before", device="cuda")):
        save_vetting(folder, each)
    assert load_problem(folder).vettings == (replace(first, version="before", device="cuda"),), "of another version"
    for each in (first, half, other_device):
        save_vetting(folder, each)
    problem = load_problem(folder)
    assert set(problem.vettings) == {first, half, other_device}
    assert problem.labels == (Label.TF32_PASSES, Label.HALF_PASSES)
    assert (problem.refusal, problem.refusal_at("float16")) == (None, REFUSALS[Label.ZEROS_PASS])
    assert problem.refusal_at("bfloat16") == NOT_VETTED


def test_a_vetting_of_another_version_is_stale_and_counts_for_nothing(tmp_path: Path) -> None:
    folder = make(tmp_path)
    save_vetting(folder, vetting_of(load_problem(folder), Label.ZEROS_PASS))
    (folder / "problem.toml").write_text(MANIFEST + LOOSE)
    problem = load_problem(folder)
    assert problem.stale
    assert (problem.labels, problem.refusal) == (None, NOT_VETTED)
    assert problem.to_record()["vetting"]["stale"] is True


@pytest.mark.parametrize("text", ["{", "[]", "{}", '[{"labels": [], "checks": [{}]}]'])
def test_a_vetting_that_cannot_be_read_is_named(tmp_path: Path, text: str) -> None:
    folder = make(tmp_path)
    (folder / "vetting.json").write_text(text)
    with pytest.raises(ProblemError, match=r"vetting\.json: .*problems check --write"):
        load_problem(folder)


def test_a_label_that_is_not_known_is_refused(tmp_path: Path) -> None:
    folder = make(tmp_path)
    content = vetting_of(load_problem(folder)).to_dict() | {"labels": ["smells"]}
    (folder / "vetting.json").write_text(json.dumps([content]))
    with pytest.raises(ProblemError, match="smells"):
        load_problem(folder)


def test_every_label_has_its_meaning_and_every_refusal_is_a_sentence() -> None:
    assert set(MEANING) == set(Label)
    assert all(sentence[0].isupper() and sentence.endswith(".") for sentence in REFUSALS.values())
    assert not [label for label in REFUSALS if label.endswith("_on_given_inputs")]
    assert not {Label.TF32_PASSES, Label.HALF_PASSES, Label.NO_GRADIENT} & set(REFUSALS)


def test_the_problems_of_this_repository_are_vetted_and_ranked() -> None:
    for problem in load_problems(Path(__file__).parents[3] / "reference_models").values():
        assert problem.labels is not None, f"{problem.id} has changed: kerneljudge problems check {problem.id} --write"
        assert problem.refusal is None
