"""Importing problems in KernelBench's form: what is admitted, what is refused, and what is said of either."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from evaluator.candidates.candidate import Candidate
from evaluator.config import EvalConfig
from evaluator.engine import Engine
from evaluator.errors import InfrastructureFault, ProblemError
from evaluator.problems.importing import Admission, AdmissionStatus, find_files, import_file
from evaluator.problems.importing.checkout import identify
from evaluator.problems.importing.examine import SMOKE_BYTES
from evaluator.problems.importing.findings import read_findings
from evaluator.problems.problem import KernelBenchIdentity, Problem
from evaluator.problems.vetting import NOT_VETTED
from tests.checkouts import reference, write_published

LINEAR = "self.fc = nn.Linear(2048, 64)"
RANDOM_STATE = "self.before = torch.zeros(())"
CONV = """\
batch_size = 64
in_channels, out_channels = 512, 1024
height = width = 128
kernel_size = 3
groups = 4
"""

# How each differs from a problem without oddities, and what is said of it.
ADMITTED: dict[str, tuple[str, str]] = {
    "a float argument": (reference("return x * s", arguments="x, s", draw="s = 3.14",
                                   inputs="torch.rand(batch_size, features), s"), "input 2 is 3.14, no tensor"),
    "a boolean input": (
        reference("return torch.cumsum(x * mask, dim=1)", arguments="x, mask", inputs="x, mask",
                  draw="x = torch.rand(batch_size, features)\n    mask = torch.randint(0, 2, x.shape).bool()"),
        "input 2 is bool, and stays so"),
    "class indices": (
        reference("return nn.functional.cross_entropy(x, at)", arguments="x, at",
                  inputs="torch.rand(batch_size, features), torch.randint(0, features, (batch_size,))"),
        "input 2 is int64, and stays so"),
    "nothing but integers": (
        reference("return self.table[at]", init="self.table = nn.Parameter(torch.randn(9, 16))", arguments="at",
                  inputs="torch.randint(0, 9, (batch_size, features))"),
        "input 1 is int64, and stays so"),
    "a scalar output": (reference("return x.square().mean()"), "it returns a scalar"),
    "a scalar input": (reference("return x * s", arguments="x, s",
                                 inputs="torch.rand(batch_size, features), torch.rand(())"), "input 2 is a scalar"),
    "several outputs": (reference("return x * 2, x.argmax(dim=1)"), "it returns 2 tensors"),
    "an integer output": (reference("return x.argmax(dim=1)"), "it returns int64, equal but for ties and rounding"),
    "a fixed dtype": (reference("return self.fc(x.float())", init=LINEAR,
                                sizes="batch_size = 64\nfeatures = 2048",
                                inputs="torch.rand(batch_size, features, dtype=torch.bfloat16)"),
                      "input 1 is bfloat16, and stays so"),
    "complex numbers": (reference("return torch.fft.fft(x)",
                                  inputs="torch.rand(batch_size, features, dtype=torch.complex64)"),
                        "it returns complex64, compared as pairs of reals"),
    "channels last": (reference("return x * 2", sizes="batch_size = 16\nchannels = 32\nheight = 64",
                                inputs="torch.rand(batch_size, channels, height, height)"
                                       ".to(memory_format=torch.channels_last)"),
                      "input 1 is with its dimensions in another order in memory, which stays so"),
    "a view with gaps": (reference("return x * 2", inputs="torch.rand(batch_size, features)[:, ::2]"),
                         "input 1 is with gaps in memory or elements that share a place, and is made contiguous"),
    "sparse gradients": (reference("return self.table(at)", arguments="at",
                                   init="self.table = nn.Embedding(90, 16, sparse=True)",
                                   inputs="torch.randint(0, 90, (batch_size, features))"),
                         "input 1 is int64, and stays so"),
    "nothing to differentiate": (reference("return x.argmin(dim=1)"), "there is nothing to differentiate"),
    "huge inputs": (reference("return x * 2", sizes="batch_size = 32768\nfeatures = 131072"),
                    "its inputs take 16.0 GiB as published"),
    "many elements": (reference("return x * 2", sizes="batch_size = 32768\nfeatures = 131072"),
                      "a tensor has 2^31 elements or more as published"),
    "a parameter without a gradient": (
        reference("return self.fc(x)", init=LINEAR + "\n        self.unused = nn.Parameter(torch.randn(7))",
                  sizes="batch_size = 64\nfeatures = 2048"), "nothing flows back to unused"),
    "a backward pass that fails": (reference("y = torch.relu(x)\n        y += 1\n        return y"),
                                   "gradients are not looked at, its backward pass fails: RuntimeError"),
    "a second backward pass that fails": (
        reference("self.h = self.h.copy_(h).mul(w) if self.h is not None else h * w\n        return x + self.h",
                  init="self.h = None", arguments="x, h, w",
                  inputs="torch.rand(batch_size, features), torch.rand(batch_size, features), torch.rand(1)"),
        "its backward pass fails: when a model is called again"),
    "a batch norm in training": (
        reference("return self.norm(x)", init="self.norm = nn.BatchNorm1d(n)", parameters=", n",
                  init_inputs="[features]"),
        "a batch norm in training changes norm.running_mean, norm.running_var, norm.num_batches_tracked"),
    "a counter of calls": (
        reference("self.calls += 1\n        return x * 2",
                  init="self.register_buffer('calls', torch.zeros((), dtype=torch.int64))"),
        "a call changes calls; that is not compared"),
    "a constructor that looks at values, and an integer output": (
        reference("return (x * self.rate).argmax(dim=1)", init="self.rate = torch.linspace(0, 1, 3)[1].item()"),
        "it returns int64"),
    "symmetric inputs": (
        reference("return x @ x", sizes="N = 2048", inputs="A", draw="A = torch.rand(N, N)\n    A = (A + A.T) / 2"),
        "inputs are only as get_inputs makes them"),
    "targets of plus and minus one": (
        reference("return torch.mean(torch.clamp(1 - x * t, min=0))", arguments="x, t",
                  inputs="torch.rand(batch_size, features), torch.randint(0, 2, (features,)).float() * 2 - 1"),
        "inputs are only as get_inputs makes them"),
}  # fmt: skip

REFUSED: dict[str, tuple[str, str]] = {
    "dropout": (reference("return torch.dropout(x, 0.5, True)"), "its output is random"),
    "randomness in forward": (reference("return x + torch.rand_like(x)"), "its output is random"),
    "a state across calls": (
        reference("with torch.no_grad():\n            self.before = self.before + x.mean()\n"
                  "        return x * self.before", init=RANDOM_STATE),
        "it keeps a state across calls"),
    "an input that is changed": (reference("return x.detach().mul_(2.0)"), "it writes to its inputs"),
    "no float64": (reference("assert x.dtype is torch.float32\n        return x * 2"), "it fails in float64"),
    "a sparse output": (reference("return x.to_sparse()"), "its shapes cannot be found without computing it"),
    "an output without a finite number": (reference("return torch.log(-x - 1.0)"), "not one of its output's elements"),
    "an exception": (reference("raise ValueError('not today')"), "without computing it: ValueError: not today"),
    "what depends on values": (reference("return x[x > 0.5]"), "its shapes cannot be found without computing it"),
    "a dictionary of outputs": (reference("return {'y': x}"), "it returns a dict"),
    "an input that is a list": (reference("return x[0]", inputs="[torch.rand(4)]"), "an input is a list"),
    "keyword arguments": (reference("return x", init_inputs="{'n': 4}"), "get_init_inputs() returns a dict"),
    "inputs that are no list": (reference("return x").replace("return [torch.rand(batch_size, features)]",
                                                              "return torch.rand(4)"), "get_inputs() returns a Tensor"),
    "a package that is missing": ("import nowhere_at_all\n" + reference("return x"),
                                  "it needs the package nowhere_at_all, which is not installed here"),
    "an import that fails": ("import os\nos.listdir('/nowhere')\n" + reference("return x"),
                             "importing it fails: FileNotFoundError"),
    "an exit": ("raise SystemExit(0)\n" + reference("return x"), "importing it fails: SystemExit"),
    "a process that is ended": ("import os\nos._exit(0)\n" + reference("return x"), "ended without a report"),
    "a syntax error": ("def get_inputs(:\n", "it does not parse"),
    "a very long sum": (f"n = {'+'.join('1' * 100_000)}\n" + reference("return x"), "it does not parse"),
    "no model": (reference("return x").replace("class Model", "class Modell"), "it does not define Model"),
    "a model that is none": (reference("return x").replace("class Model(nn.Module)", "class Model"),
                             "Model is no torch.nn.Module"),
}  # fmt: skip

BATCHES = "batch_size = 6\nchannels = 4\nlength = 16"
SEQUENCE = "batch_size = 6\nlength = 8\nfeatures = 16"
BATCHED = "torch.rand(batch_size, channels, length, length)"
TWO = "torch.rand(batch_size, features), torch.rand(batch_size, features)"

# Whether rows influence each other, and what they go through.
ROWS: dict[str, tuple[bool, str]] = {
    "an activation": (True, reference("return torch.sigmoid(x)")),
    "a softmax of each row": (True, reference("return torch.softmax(x, dim=1)")),
    "a softmax over rows": (False, reference("return torch.softmax(x, dim=0)")),
    "a sum in each row": (True, reference("return torch.cumsum(x, dim=1)")),
    "a sum over rows": (False, reference("return torch.cumsum(x, dim=0)")),
    "what is largest in each row": (True, reference("return x.argmax(dim=1)")),
    "rows in their order": (False, reference("return x.sort(dim=0).values")),
    "the largest rows": (False, reference("return x.topk(kept, dim=0).values",
                                          sizes="batch_size = 64\nfeatures = 2048\nkept = 64")),
    "the largest of all": (False, reference("return x / x.max()")),
    "a norm of all": (False, reference("return x / torch.norm(x, p='fro')")),
    "a deviation from other rows": (False, reference("return x - x.mean(0)")),
    "the number of rows": (False, reference("return x / x.shape[0]")),
    "the number of a row": (False, reference("return x * torch.ones_like(x).cumsum(0)")),
    "gradients of the mean row": (False, reference("m = x.mean(0)\n        return x + (m - m.detach())")),
    "rows in pairs": (False, reference("return x.view(len(x) // 2, 2, -1).flip(1).reshape(x.shape)")),
    "half of the rows": (False, reference("return x[::2]")),
    "columns first": (False, reference("return x.T", sizes="batch_size = 64",
                                       inputs="torch.rand(batch_size, batch_size)")),
    "a scalar": (False, reference("return x.square().mean()")),
    "a loss": (False, reference("return nn.functional.mse_loss(x, y)", arguments="x, y", inputs=TWO)),
    "a loss of each row": (True, reference(
        "return nn.functional.cross_entropy(x, at, reduction='none')", arguments="x, at",
        inputs="torch.rand(batch_size, features), torch.randint(0, features, (batch_size,))")),
    "several outputs": (True, reference("return x * 2, x.argmax(dim=1), x > 0")),
    "one output of several": (False, reference("return x * 2, x.mean(0)")),
    "arguments of other types": (True, reference(
        "return torch.where(mask, x * s, -x)", arguments="x, mask, s",
        inputs="torch.rand(batch_size, features), torch.rand(batch_size, features) > 0.5, 3.14")),
    "a scalar input": (False, reference("return x * s", arguments="x, s",
                                        inputs="torch.rand(batch_size, features), torch.rand(())")),
    "a weight that is given": (False, reference("return x * w", arguments="x, w",
                                                sizes="batch_size = 64",
                                                inputs="torch.rand(batch_size, batch_size), torch.rand(batch_size)")),
    "one matrix and another": (False, reference("return x @ y", arguments="x, y", sizes="batch_size = 64",
                                                inputs=", ".join(["torch.rand(batch_size, batch_size)"] * 2))),
    "matrices and others": (True, reference("return torch.bmm(x, y)", arguments="x, y", sizes=BATCHES,
                                            inputs=", ".join(["torch.rand(batch_size, length, length)"] * 2))),
    "inputs as they were made": (True, reference("return x * 2", draw="x = torch.rand(batch_size, features)\n"
                                                 "    x = x.softmax(dim=1)", inputs="x")),
    "a linear layer": (True, reference("return torch.relu(self.fc(x))", init=LINEAR)),
    "a normalisation of each row": (True, reference("return self.norm(x)", init="self.norm = nn.LayerNorm(2048)")),
    "a group norm": (True, reference("return self.norm(x)", init="self.norm = nn.GroupNorm(2, 4)", sizes=BATCHES,
                                     inputs=BATCHED)),
    "an instance norm": (True, reference("return self.norm(x)", init="self.norm = nn.InstanceNorm2d(4)",
                                         sizes=BATCHES, inputs=BATCHED)),
    "a batch norm in training": (False, reference("return self.norm(x)", init="self.norm = nn.BatchNorm2d(4)",
                                                  sizes=BATCHES, inputs=BATCHED)),
    "a batch norm in use": (True, reference("return self.norm(x)", init="self.norm = nn.BatchNorm2d(4).eval()",
                                            sizes=BATCHES, inputs=BATCHED)),
    "a network of convolutions": (True, reference(
        "return self.fc(nn.functional.max_pool2d(torch.relu(self.conv(x)), 2).flatten(1))", sizes=BATCHES,
        init="self.conv = nn.Conv2d(4, 8, 3)\n        self.fc = nn.Linear(392, 10)", inputs=BATCHED)),
    "attention within a row": (True, reference(
        "return self.attention(x, x, x, need_weights=False)[0]", sizes=SEQUENCE,
        init="self.attention = nn.MultiheadAttention(16, 2, batch_first=True)",
        inputs="torch.rand(batch_size, length, features)")),
    "attention between rows": (False, reference(
        "return self.attention(x, x, x, need_weights=False)[0]", sizes=SEQUENCE,
        init="self.attention = nn.MultiheadAttention(16, 2)", inputs="torch.rand(length, batch_size, features)")),
    "a sequence in each row": (True, reference("return self.rnn(x)[0]", sizes=SEQUENCE,
                                               init="self.rnn = nn.GRU(16, 8, batch_first=True)",
                                               inputs="torch.rand(batch_size, length, features)")),
    "a sequence of rows": (False, reference("return self.rnn(x)[0]", sizes=SEQUENCE, init="self.rnn = nn.GRU(16, 8)",
                                            inputs="torch.rand(length, batch_size, features)")),
    "a single row": (False, reference("return torch.relu(x)", inputs="torch.rand(1, features)")),
    "no tensor": (False, reference("return self.w * s", init="self.w = nn.Parameter(torch.rand(8))", arguments="s",
                                   inputs="2.0")),
}  # fmt: skip


@pytest.fixture(scope="module")
def sandbox(artifact_cache: Path) -> Iterator[Engine]:
    with Engine(device=None, cache_dir=artifact_cache) as engine:
        yield engine


def admit(root: Path, sandbox: Engine, source: str, scale: Fraction | None = None, *, level: int = 1) -> Admission:
    return import_file(write_published(root, level, "7_Odd_One__", source), root / "into", sandbox, scale)


def admitted(root: Path, sandbox: Engine, source: str, scale: Fraction | None = None) -> Problem:
    admission = admit(root, sandbox, source, scale)
    assert admission.problem is not None, admission.reason
    return admission.problem


# --- what is admitted and what is not --------------------------------------------------------------------------------


@pytest.mark.parametrize("oddity", ADMITTED)
def test_an_oddity_that_can_be_judged_is_admitted_and_told(oddity: str, tmp_path: Path, sandbox: Engine) -> None:
    source, words = ADMITTED[oddity]
    admission = admit(tmp_path, sandbox, source)
    assert admission.status is AdmissionStatus.NEW, admission.reason
    assert any(words in note for note in admission.notes), admission.notes
    assert admission.problem is not None
    assert words[1:] in admission.problem.description


@pytest.mark.parametrize("oddity", REFUSED)
def test_what_cannot_be_judged_is_refused_with_a_reason(oddity: str, tmp_path: Path, sandbox: Engine) -> None:
    source, words = REFUSED[oddity]
    admission = admit(tmp_path, sandbox, source)
    assert (admission.status, admission.problem) == (AdmissionStatus.REFUSED, None)
    assert words in admission.reason
    assert not (tmp_path / "into" / admission.id).exists()


def test_a_problem_without_oddities_has_no_notes(tmp_path: Path, sandbox: Engine) -> None:
    assert admit(tmp_path, sandbox, reference("return torch.relu(x)")).notes == ()


def test_level_4_is_refused_without_a_look(tmp_path: Path, sandbox: Engine) -> None:
    admission = admit(tmp_path, sandbox, reference("return x"), level=4)
    assert admission.status is AdmissionStatus.REFUSED
    assert "level 4 loads whole models of Hugging Face's transformers" in admission.reason


def test_foreign_code_never_runs_in_this_process(tmp_path: Path, sandbox: Engine) -> None:
    trap = tmp_path / "trap"
    attempt = f"import os\ntry:\n    open({str(trap)!r}, 'w').close()\nexcept OSError:\n    pass\n"
    source = attempt + f"assert os.getpid() != {os.getpid()}\n" + reference("return x * 2")
    assert admit(tmp_path, sandbox, source).status is AdmissionStatus.NEW
    assert not trap.exists()


def test_what_a_reference_prints_does_not_hide_the_report(tmp_path: Path, sandbox: Engine) -> None:
    noise = "import os\nfor _ in range(3000):\n    print('x' * 100)\n    os.write(1, b'y' * 100 + b'\\n')\n"
    assert admit(tmp_path, sandbox, noise + reference("return x * 2")).status is AdmissionStatus.NEW


REPORT: dict[str, Any] = {
    "inputs": [{"dtype": "float32", "shape": [4, 8], "layout": "permuted"}],
    "outputs": [{"value": "3.14"}],
    "parameters": 0,
    "differentiable": True,
    "batch_norm": False,
    "full": {"bytes": 9, "operations": 9},
    "smoke": {
        "values": {"rows": 4}, "bytes": 9, "operations": 9, "forward_s": 0.1, "backward": "", "state": [],
        "without_gradient": [], "row_independent": True, "whole_inputs": [], "pooled": "",
    },
}  # fmt: skip


def test_a_report_is_read() -> None:
    found = read_findings(REPORT, {"rows": 8})
    assert found.smoke.values == {"rows": 4}
    assert found.full.values == {"rows": 8}
    assert (found.inputs[0].bytes, found.inputs[0].layout) == (128, "permuted")
    assert found.row_independent


@pytest.mark.parametrize(
    ("part", "made_up"),
    [
        ("smoke", {**REPORT["smoke"], "values": {"rows": 9}}),
        ("smoke", {**REPORT["smoke"], "values": {"rows": 0}}),
        ("smoke", {**REPORT["smoke"], "values": {"rows": 4.5}}),
        ("smoke", {**REPORT["smoke"], "values": {"rows": True}}),
        ("smoke", {**REPORT["smoke"], "values": {"rows": 4, "other": 1}}),
        ("smoke", {**REPORT["smoke"], "values": {}}),
        ("smoke", {**REPORT["smoke"], "bytes": -1}),
        ("smoke", {**REPORT["smoke"], "backward": 7}),
        ("smoke", {name: value for name, value in REPORT["smoke"].items() if name != "row_independent"}),
        ("smoke", {**REPORT["smoke"], "whole_inputs": [-1]}),
        ("smoke", {**REPORT["smoke"], "whole_inputs": 1}),
        ("smoke", {**REPORT["smoke"], "pooled": "median"}),
        ("smoke", {**REPORT["smoke"], "state": ["a"] * 10_000}),
        ("smoke", {**REPORT["smoke"], "state": "all"}),
        ("smoke", None),
        ("full", {"bytes": 2**70, "operations": 9}),
        ("inputs", [{"dtype": 3, "shape": [4], "layout": "contiguous"}]),
        ("inputs", [{"dtype": "float32", "shape": "44", "layout": "contiguous"}]),
        ("inputs", [{"dtype": "float32", "shape": [4], "layout": "diagonal"}]),
        ("inputs", [{"dtype": "float32", "shape": [4]}]),
        ("outputs", [[]]),
    ],
)
def test_a_report_that_a_reference_makes_up_is_none(part: str, made_up: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_findings({**REPORT, part: made_up}, {"rows": 8})


@pytest.mark.parametrize("said", ["", "{mark}", "{mark}[]", "{mark}{{}}", "{mark}7", "no mark at all"])
def test_a_process_that_says_anything_else_has_reported_nothing(said: str, tmp_path: Path) -> None:
    class Talking:
        def build(self, _problem: Problem, candidate: Candidate, _config: EvalConfig) -> Said:
            found = re.search(r'"mark": "(\w+)"', candidate.source.replace("\\", ""))
            assert found is not None
            return Said(said.format(mark=found[1]))

    path = write_published(tmp_path, 1, "7_Odd", reference("return x"))
    admission = import_file(path, tmp_path / "into", Talking(), None)
    assert admission.status is AdmissionStatus.REFUSED
    assert "the process that examined it" in admission.reason


@dataclass
class Said:
    """What a runner has printed."""

    log: str
    evaluation: None = None


def test_a_fault_of_ours_is_no_refusal(tmp_path: Path) -> None:
    class Broken:
        def build(self, *_given: object) -> Admission:
            raise InfrastructureFault("the fork server died")

    path = write_published(tmp_path, 1, "7_Odd", reference("return x"))
    admission = import_file(path, tmp_path / "into", Broken(), None)  # type: ignore[arg-type] - it never returns
    assert (admission.status, admission.reason) == (AdmissionStatus.FAILED, "the fork server died; import it again")


# --- rows ------------------------------------------------------------------------------------------------------------

# The arguments that each slice needs as a whole, and how outputs follow from those of slices.
SLICES: dict[str, tuple[tuple[int, ...], str, str]] = {
    "a mean of all": ((), "mean", reference("return x.square().mean()")),
    "a sum of all": ((), "sum", reference("return x.exp().sum()")),
    "a mean of each column": ((), "mean", reference("return x.square().mean(0)")),
    "a loss": ((), "mean", reference("return nn.functional.huber_loss(x, y)", arguments="x, y", inputs=TWO)),
    "a loss with labels": (
        (),
        "mean",
        reference(
            "return nn.functional.cross_entropy(x, at)",
            arguments="x, at",
            inputs="torch.rand(batch_size, features), torch.randint(0, features, (batch_size,))",
        ),
    ),
    "a loss with what all rows share": (
        (1,),
        "mean",
        reference(
            "return torch.clamp(1 - x * w, min=0).mean()",
            arguments="x, w",
            inputs="torch.rand(batch_size, features), torch.rand(features)",
        ),
    ),
    "a matrix for all rows": (
        (1,),
        "",
        reference(
            "return x @ y",
            arguments="x, y",
            sizes="batch_size = 64",
            inputs=", ".join(["torch.rand(batch_size, batch_size)"] * 2),
        ),
    ),
    "a matrix before the rows": (
        (0,),
        "",
        reference(
            "return y @ x.T",
            arguments="x, y",
            sizes="batch_size = 64\nfeatures = 48",
            inputs="torch.rand(32, features), torch.rand(batch_size, features)",
        ),
    ),
    "a root of a mean": ((), "", reference("return x.square().mean().sqrt()")),
    "a sum of columns over rows": ((), "", reference("return x.T @ y", arguments="x, y", inputs=TWO)),
    "a median": ((), "", reference("return x.median()")),
    "a penalty of the weights that counts once": (
        (),
        "",
        reference("return self.fc(x).square().sum() + self.fc.weight.square().sum()", init=LINEAR),
    ),
    "a norm of all": ((), "", reference("return x / torch.norm(x, p='fro')")),
}


@pytest.mark.parametrize("what", ROWS)
def test_rows_are_independent_where_a_few_of_them_come_out_as_among_the_others(
    what: str, tmp_path: Path, sandbox: Engine
) -> None:
    independent, source = ROWS[what]
    assert admitted(tmp_path, sandbox, source).row_independent is independent


@pytest.mark.parametrize("what", SLICES)
def test_slices_are_put_together_where_that_gives_what_all_rows_give(
    what: str, tmp_path: Path, sandbox: Engine
) -> None:
    whole_inputs, pooled, source = SLICES[what]
    problem = admitted(tmp_path, sandbox, source)
    assert (problem.row_independent, problem.whole_inputs, problem.pooled) == (False, whole_inputs, pooled)


def test_rows_are_not_looked_at_where_a_call_is_long(tmp_path: Path, sandbox: Engine) -> None:
    source = reference("return x @ x", sizes="batch_size = 2", inputs="torch.rand(batch_size, 800, 800)")
    assert not admitted(tmp_path, sandbox, source).row_independent


# --- what is written -------------------------------------------------------------------------------------------------


def test_a_problem_is_written_in_our_form(tmp_path: Path, sandbox: Engine) -> None:
    source = reference("return torch.relu(x)", sizes="batch_size = 1024 * 4\nfeatures = 8192")
    problem = admitted(tmp_path, sandbox, source)
    assert problem.id == "kernelbench_1_007_odd_one"
    assert problem.title == "Odd One"
    assert problem.description == "Does as it is told. Level 1, problem 7 of KernelBench."
    assert problem.tags == ("kernelbench", "level1", "7")
    assert problem.kernelbench == KernelBenchIdentity(1, 7, "7_Odd_One__")
    assert problem.source == source == problem.sized_source("full")
    assert problem.sizes["full"] == {"batch_size": 4096, "features": 8192}
    assert (problem.gradient_policy, problem.input_domain) == ("check", "real")
    assert problem.row_independent
    assert problem.refusal == NOT_VETTED


def test_policies_follow_from_what_was_found(tmp_path: Path, sandbox: Engine) -> None:
    failing = admitted(tmp_path / "a", sandbox, ADMITTED["a backward pass that fails"][0])
    assert (failing.gradient_policy, failing.input_domain) == ("none", "real")
    symmetric = admitted(tmp_path / "b", sandbox, ADMITTED["symmetric inputs"][0])
    assert (symmetric.gradient_policy, symmetric.input_domain) == ("check", "as_written")


@pytest.mark.parametrize(
    ("draw", "inputs", "domain"),
    [
        ("scale = torch.rand(())", "torch.rand(batch_size, features) * scale", "real"),
        ("x = torch.randn(batch_size, features)", "x", "real"),
        ("x = torch.rand(batch_size, features)\n    x = torch.triu(x)", "x", "as_written"),
        ("", "torch.rand(batch_size, features).softmax(dim=-1)", "as_written"),
        ("", "torch.rand(batch_size, features) * 2 - 1", "as_written"),
    ],
)
def test_inputs_may_be_any_where_they_are_as_they_were_drawn(
    draw: str, inputs: str, domain: str, tmp_path: Path, sandbox: Engine
) -> None:
    source = reference("return torch.relu(x)", draw=draw, inputs=inputs)
    assert admitted(tmp_path, sandbox, source).input_domain == domain


def test_importing_again_keeps_what_has_not_changed(tmp_path: Path, sandbox: Engine) -> None:
    source = reference("return x * 2")
    first = admitted(tmp_path, sandbox, source)
    manifest = tmp_path / "into" / first.id / "problem.toml"
    manifest.write_text(manifest.read_text().replace('title = "Odd One"', 'title = "Mine"'))
    again = admit(tmp_path, sandbox, source)
    assert again.status is AdmissionStatus.UNCHANGED
    assert again.problem is not None
    assert (again.problem.version, again.problem.title) == (first.version, "Mine")
    changed = admit(tmp_path, sandbox, reference("return x * 3"))
    assert changed.status is AdmissionStatus.CHANGED
    assert changed.problem is not None
    assert changed.problem.version != first.version
    assert admit(tmp_path, sandbox, reference("return x * 3"), Fraction(1, 4)).status is AdmissionStatus.CHANGED


def test_rows_that_nobody_has_looked_at_are_not_looked_at_again(tmp_path: Path, sandbox: Engine) -> None:
    source = reference("return x * 2")
    first = admitted(tmp_path, sandbox, source)
    manifest = tmp_path / "into" / first.id / "problem.toml"
    manifest.write_text(manifest.read_text().replace("[reference]\nrow_independent = true\n", ""))
    again = admit(tmp_path, sandbox, source)
    assert (again.status, again.to_record()["row_independent"]) == (AdmissionStatus.UNCHANGED, False)
    assert again.problem is not None
    assert again.problem.version != first.version


def test_a_problem_that_was_left_half_written_is_written_again(tmp_path: Path, sandbox: Engine) -> None:
    first = admitted(tmp_path, sandbox, reference("return x * 2"))
    (tmp_path / "into" / first.id / "problem.toml").write_text("title = ")
    again = admit(tmp_path, sandbox, reference("return x * 2"))
    assert (again.status, again.problem) == (AdmissionStatus.NEW, first)


def test_texts_of_any_kind_survive_the_manifest(tmp_path: Path, sandbox: Engine) -> None:
    words = 'Says \\"größe\\" \\x7f \\u2028 \\\\ {}'
    source = reference("return x * 2").replace("Does as it is told", words)
    assert admitted(tmp_path, sandbox, source).description.startswith('Says "größe" \x7f')


# --- sizes -----------------------------------------------------------------------------------------------------------


def test_smoke_is_small_and_keeps_what_must_divide_dividing(tmp_path: Path, sandbox: Engine) -> None:
    source = reference(
        "return self.norm(self.conv(x))", sizes=CONV, parameters=", i, o, k, g",
        init="self.conv = nn.Conv2d(i, o, k, groups=g)\n        self.norm = nn.GroupNorm(g, o)",
        inputs="torch.rand(batch_size, in_channels, height, width)",
        init_inputs="[in_channels, out_channels, kernel_size, groups]",
    )  # fmt: skip
    admission = admit(tmp_path, sandbox, source)
    assert admission.problem is not None
    assert admission.bytes is not None
    smoke, full = admission.problem.sizes["smoke"], admission.problem.sizes["full"]
    assert admission.bytes["smoke"] <= SMOKE_BYTES < admission.bytes["full"]
    assert set(smoke) == set(full) <= {"batch_size", "in_channels", "out_channels", "height"}
    assert all(1 <= smoke[name] < full[name] for name in smoke)
    assert smoke["in_channels"] % 4 == smoke["out_channels"] % 4 == 0


def test_many_groups_become_fewer_with_what_they_divide(tmp_path: Path, sandbox: Engine) -> None:
    source = reference(
        "return self.norm(self.fc(x))", sizes="batch_size = 64\nfeatures = 1024\nhidden = 8192\nnum_groups = 512",
        parameters=", i, h, g", init="self.fc = nn.Linear(i, h)\n        self.norm = nn.GroupNorm(g, h)",
        init_inputs="[features, hidden, num_groups]",
    )  # fmt: skip
    smoke = admitted(tmp_path, sandbox, source).sizes["smoke"]
    assert smoke["num_groups"] < 512
    assert smoke["hidden"] % smoke["num_groups"] == 0
    assert smoke["hidden"] // smoke["num_groups"] >= 16


def test_a_normalisation_keeps_enough_to_normalise(tmp_path: Path, sandbox: Engine) -> None:
    source = reference(
        "return self.norm(x)", init="self.norm = nn.BatchNorm1d(65536)", sizes="batch_size = 64\nunused = 8",
        inputs="torch.rand(batch_size, 65536)",
    )  # fmt: skip
    assert admitted(tmp_path, sandbox, source).sizes["smoke"] == {"batch_size": 16}


def test_sizes_that_have_to_be_equal_shrink_together(tmp_path: Path, sandbox: Engine) -> None:
    source = reference(
        "return x @ w", arguments="x, w", sizes="rows = 4096\ncolumns = 4096\ninner = 64",
        inputs="torch.rand(rows, inner), torch.rand(inner, columns)",
    ).replace("return x @ w", "assert x.shape[0] == w.shape[1]\n        return x @ w")  # fmt: skip
    smoke = admitted(tmp_path, sandbox, source).sizes["smoke"]
    assert smoke["rows"] == smoke["columns"] < 4096


def test_a_size_that_is_a_multiple_of_another_shrinks_with_it(tmp_path: Path, sandbox: Engine) -> None:
    source = reference(
        "return self.norm(x)", sizes="batch_size = 64\nwidth = 512\nchannels = 1024", parameters=", n",
        init="self.norm = nn.LayerNorm((n,))", inputs="torch.rand(batch_size, 32, 2 * width)",
        init_inputs="[channels]",
    )  # fmt: skip
    smoke = admitted(tmp_path, sandbox, source).sizes["smoke"]
    assert 2 * smoke["width"] == smoke["channels"] < 1024


def test_an_odd_size_stays_odd(tmp_path: Path, sandbox: Engine) -> None:
    source = reference("return x * 2", sizes="batch_size = 8205\nfeatures = 2949")
    assert all(value % 2 for value in admitted(tmp_path, sandbox, source).sizes["smoke"].values())


def test_a_scale_is_a_size_of_its_own(tmp_path: Path, sandbox: Engine) -> None:
    source = reference("return x * 2", sizes="batch_size = 4096\nfeatures = 393216\ndim = 1")
    admission = admit(tmp_path, sandbox, source, Fraction(1, 64))
    assert admission.problem is not None
    assert admission.bytes is not None
    assert list(admission.problem.sizes) == ["full", "smoke", "scale_1_64"]
    assert admission.bytes["scale_1_64"] * 64 == admission.bytes["full"]
    assert admission.problem.sizes["scale_1_64"] == {"batch_size": 4096, "features": 6144}


def test_what_cannot_be_made_smaller_says_so(tmp_path: Path, sandbox: Engine) -> None:
    source = reference("return x * 2", sizes="batch_size = 2", inputs="torch.rand(batch_size, 3, 1024, 1024)")
    admission = admit(tmp_path, sandbox, source, Fraction(1, 64))
    assert admission.status is AdmissionStatus.NEW, admission.reason
    assert any("smoke is as small as its constants can be made" in note for note in admission.notes)
    assert "scale_1_64 is 1/1.0 at the smallest" in admission.notes


# --- finding files ---------------------------------------------------------------------------------------------------


def test_files_are_found_by_level_and_number(tmp_path: Path) -> None:
    for level, name in (
        (2, "1_A"),
        (1, "10_B"),
        (1, "9_C"),
        (1, "README"),
        (1, "_D"),
        (5, "1_E"),
        (4, "2_google-F-small"),
    ):
        write_published(tmp_path, level, name, "")
    for root in (tmp_path, tmp_path / "KernelBench"):
        assert [path.stem for path in find_files(root)] == ["9_C", "10_B", "1_A", "2_google-F-small"]
    assert [path.stem for path in find_files(tmp_path, [2])] == ["1_A"]
    assert identify(find_files(tmp_path, [4])[0])[0] == "kernelbench_4_002_google_f_small"


def test_a_folder_without_problems_says_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match=r"KernelBench/\{level3\}/<number>_<name>\.py"):
        find_files(tmp_path, [3])


def test_an_id_is_given_once(tmp_path: Path, sandbox: Engine) -> None:
    path = write_published(tmp_path, 1, "7_Odd", reference("return x * 2"))
    admission = import_file(path, tmp_path / "into", sandbox, None, ["kernelbench_1_007_odd"])
    assert admission.status is AdmissionStatus.REFUSED
    assert "another file of this checkout has the same" in admission.reason


def test_a_long_name_becomes_an_id(tmp_path: Path, sandbox: Engine) -> None:
    name = "75_conv_transposed_2D_asymmetric_input_asymmetric_kernel_strided__grouped____padded____dilated__" + "x" * 40
    path = write_published(tmp_path, 1, name, reference("return x * 2"))
    admission = import_file(path, tmp_path / "into", sandbox, None)
    assert admission.status is AdmissionStatus.NEW, admission.reason
    assert len(admission.id) == 100
