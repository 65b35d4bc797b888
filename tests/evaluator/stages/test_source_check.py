"""The verdict of a broken rule, through a whole engine: before anything is built, with each place as evidence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evaluator.candidates.candidate import Candidate, parse_candidate
from evaluator.config import EvalConfig, SamplingPlan
from evaluator.engine import NO_CALLBACKS, Engine
from evaluator.errors import ProblemError
from evaluator.evaluation import Evaluation, Verdict
from evaluator.feedback.feedback import feedback
from evaluator.problems.problem import Problem
from evaluator.problems.vetting.run import vet
from kerneljudge.terms.rules import NO_RULES, Rules
from tests.corpus import load_case

CONFIG = EvalConfig(size="smoke", sampling=SamplingPlan(max_samples=0, warm_samples=0))
HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"
LINEAR = """
class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, divisor):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.divisor = divisor

    def forward(self, x):
        {body}
"""
LAYER = HEAD + LINEAR.format(body="return torch.relu(self.linear(x)) / self.divisor")
FUNCTION = HEAD + LINEAR.format(
    body="product = F.linear\n        return product(x, self.linear.weight, self.linear.bias).relu() / self.divisor"
)
SUMS = HEAD + LINEAR.format(
    body="# F.linear(x, w) would be x @ w.t(), at::linear in C++\n"
    "        sums = torch.stack([(x * row).sum(-1) for row in self.linear.weight], dim=-1)\n"
    "        return torch.relu(sums + self.linear.bias) / self.divisor"
)
OWN_METHOD = HEAD + LINEAR.format(
    body="return self.matmul(x).relu() / self.divisor\n\n"
    "    def matmul(self, x):\n"
    '        """Not torch.matmul(x, w)."""\n'
    "        weight, bias = self.linear.weight, self.linear.bias\n"
    "        return torch.stack([(x * row).sum(-1) for row in weight], dim=-1) + bias"
)
HALF = HEAD + LINEAR.format(
    body="half = F.linear(x.bfloat16(), self.linear.weight.bfloat16(), self.linear.bias.bfloat16())\n"
    "        return half.float().relu() / self.divisor"
)
TF32 = HEAD + "torch.backends.cuda.matmul.allow_tf32 = True\n" + LAYER.removeprefix(HEAD)
NAMED_HALF = HEAD + LINEAR.format(
    body="half = 1 / self.divisor  # no x.half(), no torch.bfloat16\n        return self.linear(x).relu() * half"
)
EXACT = HEAD + "torch.backends.cuda.matmul.allow_tf32 = False\n" + LAYER.removeprefix(HEAD)
TOLD = HEAD + "# ext = load_inline('ext', SOURCE, functions=['run']) and @triton.jit\nNOTE = '__global__'\n" + LAYER
NO_PRODUCTS = Rules(forbidden_operators=("linear", "matmul"))
STRICT = Rules(no_lower_precision=True)
TORCH, CXX = Rules(languages=("torch",)), Rules(languages=("cpp", "cuda", "triton"))


def candidate(source: str) -> Candidate:
    found = parse_candidate(code=source)
    assert isinstance(found, Candidate)
    return found


def judged(engine: Engine, problem: Problem, source: str, rules: Rules) -> Evaluation:
    """The result of both stages, as a worker has it."""
    config = replace(CONFIG, rules=rules)
    report = engine.build(problem, candidate(source), config)
    return report.evaluation or engine.evaluate(problem, candidate(source), config)


@pytest.mark.parametrize(
    ("source", "rules", "line", "code"),
    [
        (LAYER, NO_PRODUCTS, 12, "self.linear calls linear, matmul"),
        (FUNCTION, NO_PRODUCTS, 12, "torch.nn.functional.linear calls linear, matmul"),
        (load_case("linear_inherits_model").source, NO_PRODUCTS, 4, "the forward that ModelNew inherits calls linear"),
        (load_case("linear_honest_cpp").source, NO_PRODUCTS, 12, "at::addmm in C++ calls matmul"),
        (HALF, STRICT, 12, "casts to bfloat16"),
        (TF32, STRICT, 4, "switches allow_tf32 on"),
        (LAYER, CXX, 5, "no kernel of its own"),
        (load_case("linear_honest_cpp").source, TORCH, 41, "builds an extension in C++"),
    ],
    ids=["layer", "function", "inherited", "C++", "bfloat16", "TF32", "torch alone", "extension"],
)
def test_a_candidate_that_breaks_a_rule_is_rejected_with_its_line(
    cpu_engine: Engine, problems: dict[str, Problem], source: str, rules: Rules, line: int, code: str
) -> None:
    evaluation = judged(cpu_engine, problems["linear_relu_divide"], source, rules)
    assert evaluation.verdict is Verdict.REJECTED
    broken = evaluation.details["broken_rules"]
    assert (broken[0]["rule"], broken[0]["line"], broken[0]["file"]) == (*rules.to_dict(), line, "candidate.py")
    assert code in broken[0]["message"]
    assert f"candidate.py, line {line}: " in evaluation.message
    assert evaluation.details["rules"] == rules.to_dict()
    assert "builds" not in evaluation.details


@pytest.mark.parametrize(
    ("source", "rules"),
    [
        (SUMS, NO_PRODUCTS),
        (OWN_METHOD, NO_PRODUCTS),
        (NAMED_HALF, STRICT),
        (EXACT, STRICT),
        (LAYER, TORCH),
        (TOLD, TORCH),
    ],
    ids=["weights alone", "own method", "name", "TF32 off", "torch alone", "comment"],
)
def test_a_candidate_that_only_looks_so_passes(
    cpu_engine: Engine, problems: dict[str, Problem], source: str, rules: Rules
) -> None:
    evaluation = judged(cpu_engine, problems["linear_relu_divide"], source, rules)
    assert evaluation.verdict is Verdict.PASSED, evaluation.message
    assert evaluation.details["rules"] == rules.to_dict()


def test_without_rules_the_same_candidates_are_judged_as_ever(cpu_engine: Engine, problems: dict[str, Problem]) -> None:
    for source in (LAYER, FUNCTION, TF32):
        evaluation = judged(cpu_engine, problems["linear_relu_divide"], source, NO_RULES)
        assert evaluation.verdict is Verdict.PASSED, evaluation.message
        assert "rules" not in evaluation.details


def test_rules_of_the_problem_hold_without_the_caller_and_cannot_be_loosened(
    cpu_engine: Engine, problems: dict[str, Problem]
) -> None:
    strict = replace(problems["linear_relu_divide"], rules=Rules(languages=("torch",), forbidden_operators=("linear",)))
    for rules in (NO_RULES, Rules(forbidden_operators=("conv2d",)), TORCH):
        assert judged(cpu_engine, strict, LAYER, rules).verdict is Verdict.REJECTED
    added = judged(cpu_engine, strict, SUMS, Rules(forbidden_operators=("sum",)))
    assert added.verdict is Verdict.REJECTED
    assert added.details["rules"] == {"forbidden_operators": ["linear", "sum"], "languages": ["torch"]}


def test_rules_that_nothing_can_keep_are_no_verdict(cpu_engine: Engine, problems: dict[str, Problem]) -> None:
    strict = replace(problems["linear_relu_divide"], rules=TORCH)
    with pytest.raises(ProblemError, match="languages"):
        cpu_engine.evaluate(strict, candidate(LAYER), replace(CONFIG, rules=CXX))


def test_of_several_evaluated_together_only_those_that_break_a_rule_are_rejected(
    cpu_engine: Engine, problems: dict[str, Problem]
) -> None:
    config = replace(CONFIG, rules=NO_PRODUCTS)
    candidates = [candidate(source) for source in (LAYER, SUMS, FUNCTION)]
    results = dict(cpu_engine.evaluate_group(problems["linear_relu_divide"], candidates, config, [NO_CALLBACKS] * 3))
    verdicts = {index: result.verdict for index, result in results.items() if isinstance(result, Evaluation)}
    assert verdicts == {0: Verdict.REJECTED, 1: Verdict.PASSED, 2: Verdict.REJECTED}


def test_a_rejected_candidate_is_never_executed(cpu_engine: Engine, problems: dict[str, Problem]) -> None:
    report = cpu_engine.build(
        problems["linear_relu_divide"],
        candidate("while True: pass\n" + LAYER),
        replace(CONFIG, rules=NO_PRODUCTS, limits=replace(CONFIG.limits, load_s=1.0)),
    )
    assert report.evaluation is not None
    assert report.evaluation.verdict is Verdict.REJECTED
    assert report.seconds < 1.0


def test_the_feedback_names_the_rules_and_each_line(cpu_engine: Engine, problems: dict[str, Problem]) -> None:
    evaluation = judged(cpu_engine, problems["linear_relu_divide"], LAYER, NO_PRODUCTS)
    text = feedback(evaluation, LAYER)
    assert "Verdict: rejected before it was built: its source breaks a rule" in text
    assert "Rules: forbidden_operators linear, matmul." in text
    assert "forbidden_operators, line 12: self.linear calls linear, matmul: return torch.relu(self.linear(x))" in text


def test_a_problem_whose_rules_its_reference_breaks_can_be_vetted(
    cpu_engine: Engine, problems: dict[str, Problem]
) -> None:
    strict = replace(problems["relu"], rules=Rules(forbidden_operators=("relu",)))
    vetting = vet(strict, cpu_engine, "cpu", "smoke")
    assert vetting.refusals == ()
    assert vetting.version == strict.version
