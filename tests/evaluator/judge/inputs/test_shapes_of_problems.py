"""Problems of every form: integers among inputs and outputs, scalars, views, what has no gradient."""

from __future__ import annotations

from pathlib import Path

import pytest

from evaluator.candidates.candidate import Candidate, parse_candidate
from evaluator.config import EvalConfig, SamplingPlan
from evaluator.engine import Engine
from evaluator.evaluation import Evaluation, Gradients, Verdict
from evaluator.problems.loading import load_problem

REFERENCE = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, {arguments}):
        {forward}


rows = 24


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""
MANIFEST = 'title = "T"\ndescription = "D"\n[sizes.full]\nrows = 64\n[sizes.smoke]\nrows = 24\n'
X = "torch.randn(rows, 40)"
WEIGHT = "self.weight = nn.Parameter(torch.randn(40))"

# init, arguments, inputs and the body of forward; then candidates, right and wrong, with what must come of them: each
# is the body of forward, in a class that constructs as the reference does.
FORMS: dict[str, tuple[str, str, str, str, list[tuple[str, Verdict, Gradients | None]]]] = {
    "a float and an integer output": (
        WEIGHT, "x", X, "best = (x * self.weight).max(dim=1)\n        return best.values, best.indices",
        [
            ("y = x * self.weight\n        at = y.argmax(dim=1)\n        return y.gather(1, at[:, None])[:, 0], at",
             Verdict.PASSED, Gradients.MATCH),
            ("best = (x * self.weight).max(dim=1)\n        return best.values, best.indices + 1",
             Verdict.WRONG_OUTPUT, None),
            ("best = (x * self.weight).max(dim=1)\n        return best.values, best.indices.int()",
             Verdict.WRONG_DTYPE, None),
            ("best = (x * self.weight).max(dim=1)\n        return best.values", Verdict.WRONG_SHAPE, None),
            ("best = (x * self.weight.detach()).max(dim=1)\n        return best.values, best.indices",
             Verdict.WRONG_GRADIENT, Gradients.MISMATCH),
        ],
    ),
    "a boolean output and none to differentiate": (
        "pass", "x", X, "return x > 0.25",
        [
            ("return ~(x <= 0.25)", Verdict.PASSED, Gradients.NOT_APPLICABLE),
            ("return x >= 0.5", Verdict.WRONG_OUTPUT, None),
            ("return (x > 0.25).to(torch.uint8)", Verdict.WRONG_DTYPE, None),
        ],
    ),
    "a scalar output": (
        WEIGHT, "x", X, "return (x * self.weight).square().sum()",
        [
            ("return (x.square() @ self.weight.square()).sum()", Verdict.PASSED, Gradients.MATCH),
            ("return (x[:-1] * self.weight).square().sum()", Verdict.WRONG_OUTPUT, None),
            ("return (x * self.weight).square().sum().view(1)", Verdict.WRONG_SHAPE, None),
            ("return (x * self.weight).square().sum().detach() + 0 * x.sum()",
             Verdict.WRONG_GRADIENT, Gradients.MISMATCH),
        ],
    ),
    "a scalar input": (
        "pass", "x, factor", X + ", torch.randn(())", "return x * factor",
        [
            ("return factor * x", Verdict.PASSED, Gradients.MATCH),
            ("return x * factor.abs()", Verdict.WRONG_OUTPUT, None),
            ("return x * factor.detach()", Verdict.WRONG_GRADIENT, Gradients.MISMATCH),
        ],
    ),
    "an output that is a transposed view": (
        WEIGHT, "x", X, "return (x * self.weight).t()",
        [
            ("return (x * self.weight).t().contiguous()", Verdict.PASSED, Gradients.MATCH),
            ("return x.t() * self.weight[:, None]", Verdict.PASSED, Gradients.MATCH),
            ("y = (x * self.weight).t().clone()\n        y[3, 5] += 1.0\n        return y", Verdict.WRONG_OUTPUT, None),
        ],
    ),
    "integers alone": (
        "self.table = nn.Parameter(torch.randn(9, 16))", "at", "torch.randint(9, (rows,))", "return self.table[at]",
        [
            ("return self.table.index_select(0, at)", Verdict.PASSED, Gradients.MATCH),
            ("return self.table[(at + 1) % 9]", Verdict.WRONG_OUTPUT, None),
            ("return self.table.detach()[at] + 0 * self.table[:1]", Verdict.WRONG_GRADIENT, Gradients.MISMATCH),
        ],
    ),
    "booleans, and a number that is no tensor": (
        "pass", "x, mask, power", X + ", torch.rand(rows, 40) < 0.5, 3", "return torch.where(mask, x, x**power)",
        [
            ("return x ** torch.where(mask, 1, power)", Verdict.PASSED, Gradients.MATCH),
            ("return torch.where(mask, x**power, x)", Verdict.WRONG_OUTPUT, None),
            ("return torch.where(mask, x.detach(), x**power)", Verdict.WRONG_GRADIENT, Gradients.MISMATCH),
        ],
    ),
    "a constructor that looks at values": (
        "self.rate = torch.linspace(0, 1, 3)[1].item()", "x", X, "return x * self.rate",
        [
            ("return x / 2", Verdict.PASSED, Gradients.MATCH),
            ("return x", Verdict.WRONG_OUTPUT, None),
        ],
    ),
    "a function that refers to a module": (
        "self.fc = fc = nn.Linear(40, 8)\n        self.function = lambda x: torch.relu(fc(x))", "x", X,
        "return self.function(x)",
        [
            ("return torch.relu(self.fc(x))", Verdict.PASSED, Gradients.MATCH),
            ("return self.function(x)", Verdict.PASSED, Gradients.MATCH),
            ("return torch.relu(self.fc(x)) * 1.01", Verdict.WRONG_OUTPUT, None),
            ("return torch.relu(self.fc(x.detach()))", Verdict.WRONG_GRADIENT, Gradients.MISMATCH),
        ],
    ),
    "complex numbers in and out, and as weights": (
        "self.weight = nn.Parameter(torch.randn(40, dtype=torch.complex64))", "x",
        "torch.randn(rows, 40, dtype=torch.complex64)", "return torch.fft.fft(x * self.weight)",
        [
            ("return torch.fft.ifft(x * self.weight)[:, (-torch.arange(40)) % 40] * 40",
             Verdict.PASSED, Gradients.MATCH),
            ("return torch.fft.fft(x * self.weight).conj().resolve_conj()", Verdict.WRONG_OUTPUT, None),
            ("return torch.fft.fft(x * self.weight.conj())", Verdict.WRONG_OUTPUT, None),
            ("y = torch.fft.fft(x * self.weight)\n        return torch.complex(y.real, y.imag.detach())",
             Verdict.WRONG_GRADIENT, Gradients.MISMATCH),
            ("return torch.view_as_real(torch.fft.fft(x * self.weight))", Verdict.WRONG_SHAPE, None),
            ("return torch.fft.fft(x * self.weight).to(torch.complex128)", Verdict.WRONG_DTYPE, None),
        ],
    ),
    "complex numbers in between, conjugated lazily": (
        "pass", "x", X, "return torch.fft.rfft(x).conj()",
        [
            ("return torch.fft.rfft(x).conj().resolve_conj()", Verdict.PASSED, Gradients.MATCH),
            ("return torch.fft.rfft(x)", Verdict.WRONG_OUTPUT, None),
        ],
    ),
    "unsigned integers": (
        "pass", "x, y", "torch.randint(2**16, (rows, 5)).to(torch.uint16), torch.randint(2**32, (rows, 5))",
        "return x, y.to(torch.uint32), y.to(torch.uint64), y.to(torch.int8), y > 2**31",
        [
            ("return x.clone(), y.to(torch.uint32), y.to(torch.uint64), y.to(torch.int8), ~(y <= 2**31)",
             Verdict.PASSED, Gradients.NOT_APPLICABLE),
            ("return x, y.to(torch.uint32), (y + 1).to(torch.uint64), y.to(torch.int8), y > 2**31",
             Verdict.WRONG_OUTPUT, None),
            ("return (x.int() ^ 1).to(x.dtype), y.to(torch.uint32), y.to(torch.uint64), y.to(torch.int8), y > 2**31",
             Verdict.WRONG_OUTPUT, None),
        ],
    ),
    "float64": (
        "self.weight = nn.Parameter(torch.randn(40, dtype=torch.float64))", "x",
        "torch.randn(rows, 40, dtype=torch.float64)", "return torch.sin(x * self.weight / 4)",
        [
            ("return torch.cos(x * self.weight / 4 - torch.pi / 2)", Verdict.PASSED, Gradients.MATCH),
            ("return torch.sin((x * self.weight / 4).float().double())", Verdict.WRONG_OUTPUT, None),
            ("y = torch.sin(x * self.weight / 4)\n        return y + (y.float().double() - y).detach()",
             Verdict.WRONG_OUTPUT, None),
        ],
    ),
    "float8, in and out": (
        "pass", "x, y", X + ".to(torch.float8_e4m3fn), " + X,
        "return (y / 3).to(torch.float8_e5m2), x.float() * y",
        [
            ("return (y * (1 / 3)).to(torch.float8_e5m2), x.to(torch.float32) * y", Verdict.PASSED, Gradients.MATCH),
            ("return (y / 5).to(torch.float8_e5m2), x.float() * y", Verdict.WRONG_OUTPUT, None),
            ("return (y / 3).to(torch.float8_e5m2), x.float() * y.detach()", Verdict.WRONG_GRADIENT, None),
        ],
    ),
    "half precision beside single": (
        "self.weight = nn.Parameter(torch.randn(40, dtype=torch.bfloat16))", "x, y",
        "torch.randn(rows, 40, dtype=torch.bfloat16), " + X,
        "assert x.dtype is torch.bfloat16 or x.dtype is torch.float64\n        return x * self.weight, y * 2",
        [
            ("assert x.dtype is torch.bfloat16\n        return (x.float() * self.weight.float()).bfloat16(), y + y",
             Verdict.PASSED, Gradients.MATCH),
            ("return x * self.weight * 1.1, y + y", Verdict.WRONG_OUTPUT, None),
            ("return x * self.weight, (y + y).bfloat16().float()", Verdict.WRONG_OUTPUT, None),
            ("return (x.float() * self.weight.float()), y + y", Verdict.WRONG_DTYPE, None),
        ],
    ),
    "sparse gradients": (
        "self.table = nn.Embedding(90, 16, sparse=True)", "at", "torch.randint(90, (rows,))", "return self.table(at)",
        [
            ("return self.table(at)", Verdict.PASSED, Gradients.MATCH),
            ("return torch.nn.functional.embedding(at, self.table.weight)", Verdict.PASSED, Gradients.MATCH),
            ("return torch.nn.functional.embedding(at, self.table.weight, sparse=True, padding_idx=int(at[0]))",
             Verdict.WRONG_GRADIENT, Gradients.MISMATCH),
            ("return self.table(at).to_sparse()", Verdict.WRONG_DTYPE, None),
        ],
    ),
    "inputs of one storage, with an offset, transposed, and with channels last": (
        "pass", "x, y, z, u",
        ("*torch.randn(2, rows, 40).unbind(), torch.randn(40, rows).t(), "
         "torch.randn(rows, 3, 4, 5).to(memory_format=torch.channels_last)"),
        "return x - y, z * 2, u.sum((1, 2))",
        [
            (("for each in (x, y, z, u):\n"
             "            assert each.storage_offset() == 0 and each.data_ptr() % 64 == 0, each.storage_offset()\n"
             "            assert each.untyped_storage().nbytes() == each.numel() * 4, each.untyped_storage().nbytes()\n"
             "            assert each.untyped_storage().data_ptr() == each.data_ptr()\n"
             "        assert z.stride() == (1, len(z)), z.stride()\n"
             "        assert u.is_contiguous(memory_format=torch.channels_last), u.stride()\n"
             "        flat = z.as_strided((z.numel(),), (1,))\n"
             "        return x - y, (flat * 2).view(40, -1).t(), u.sum((1, 2))"),
             Verdict.PASSED, Gradients.MATCH),
            ("return x - y, z.as_strided((z.numel(),), (1,)).view(-1, 40) * 2, u.sum((1, 2))",
             Verdict.WRONG_OUTPUT, None),
        ],
    ),
    "an input and a weight that nothing depends on": (
        WEIGHT + "\n        self.unused = nn.Parameter(torch.randn(7))", "x, other", X + ", torch.randn(rows)",
        "return x * self.weight + other.detach()[:, None]",
        [
            ("return torch.addcmul(other[:, None].detach(), x, self.weight)", Verdict.PASSED, Gradients.MATCH),
            ("return x * self.weight", Verdict.WRONG_OUTPUT, None),
            ("return x * self.weight.detach() + other.detach()[:, None]", Verdict.WRONG_GRADIENT, Gradients.MISMATCH),
        ],
    ),
}  # fmt: skip


def _evaluate(engine: Engine, folder: Path, form: str, body: str) -> Evaluation:
    init, arguments, inputs, forward, _ = FORMS[form]
    folder.mkdir(exist_ok=True)
    reference = REFERENCE.format(init=init, arguments=arguments, inputs=inputs, forward=forward)
    (folder / "reference.py").write_text(reference)
    (folder / "problem.toml").write_text(MANIFEST)
    return _judge(engine, folder, arguments, body)


def _judge(engine: Engine, folder: Path, arguments: str, body: str) -> Evaluation:
    """The problem in ``folder``, and a candidate of which only ``forward`` is its own."""
    source = f"import torch\nfrom model import Model\n\n\nclass ModelNew(Model):\n    def forward(self, {arguments}):\n"
    candidate = parse_candidate(code=f"{source}        {body}\n")
    assert isinstance(candidate, Candidate)
    config = EvalConfig(size="smoke", sampling=SamplingPlan(max_samples=0))
    return engine.evaluate(load_problem(folder), candidate, config)


# A step, and two inputs just above it: by one rounding, and by about eighty.
STEP = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.sign(x - 0.5)


rows = 24


def get_inputs():
    x = torch.rand(rows, 40).round() * 2.0
    x[0, 0] = 0.5 + 2.0**-24
    x[1, 1] = 0.5 + 5e-6
    return [x]


def get_init_inputs():
    return []
"""


def _evaluate_step(engine: Engine, folder: Path, body: str, more: str = "") -> Evaluation:
    folder.mkdir()
    (folder / "reference.py").write_text(STEP)
    (folder / "problem.toml").write_text(MANIFEST + '[inputs]\ndomain = "as_written"\n' + more)
    return _judge(engine, folder, "x", body)


def test_an_output_may_be_off_where_rounding_the_inputs_otherwise_would_put_it_off(
    tmp_path: Path, cpu_engine: Engine
) -> None:
    evaluation = _evaluate_step(cpu_engine, tmp_path / "step", "return torch.sign(x - 0.5 - 2e-7)")
    assert evaluation.verdict is Verdict.PASSED, evaluation.message


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        ("return torch.sign(x - 0.5 - 1e-5)", "at [1, 1]"),
        ("y = torch.sign(x - 0.5 - 2e-7)\n        y[5, 7] = 0.9\n        return y", "at [5, 7]"),
        ("y = torch.sign(x - 0.5 - 2e-7)\n        y[0, 0] = 3.5\n        return y", "at [0, 0]"),
        ("y = torch.sign(x - 0.5 - 2e-7)\n        y[0, 0] = torch.nan\n        return y", "at [0, 0]"),
    ],
)
def test_that_excuses_no_other_element_and_no_larger_error(
    body: str, wrong: str, tmp_path: Path, cpu_engine: Engine
) -> None:
    evaluation = _evaluate_step(cpu_engine, tmp_path / "step", body)
    assert evaluation.verdict is Verdict.WRONG_OUTPUT
    assert wrong in evaluation.message


@pytest.mark.parametrize("tf32", [True, False])
def test_a_candidate_begins_with_the_baselines_convolutions(tf32: bool, tmp_path: Path, cpu_engine: Engine) -> None:
    body = f"assert torch.backends.cudnn.allow_tf32 is {tf32}\n        return torch.sign(x - 0.5)"
    manifest = "" if tf32 else "[reference]\ntf32 = false\n"
    evaluation = _evaluate_step(cpu_engine, tmp_path / "step", body, manifest)
    assert evaluation.verdict is Verdict.PASSED, evaluation.message


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_problem_tells_right_from_wrong(form: str, tmp_path: Path, cpu_engine: Engine) -> None:
    for body, verdict, gradients in FORMS[form][-1]:
        evaluation = _evaluate(cpu_engine, tmp_path / "form", form, body)
        assert evaluation.verdict is verdict, (body, evaluation.message)
        assert gradients in (None, evaluation.gradients), (body, evaluation.gradients, evaluation.message)
