"""What a language model is told about its candidate: the error with its line, what helps, and no secret."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evaluator.evaluation import Evaluation, Gradients, Interval, Latency, SpeedupStatus, Verdict
from evaluator.feedback.feedback import MAX_CHARACTERS, feedback
from evaluator.judge.correctness.compare import Tally, compare_slice
from evaluator.judge.inputs.drawing import Variant
from evaluator.problems.problem import Tolerance
from evaluator.roofline import Roofline

SOURCE = '''\
import torch
from torch.utils.cpp_extension import load_inline

cuda_source = """
__global__ void relu_kernel(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaxf(x[i], 0.0f);
}
torch::Tensor relu(torch::Tensor x) {
    auto y = torch::empty_like(x);
    relu_kernel<<<(x.numel() + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), 0, 1);
    return y;
}
"""
cpp_source = "torch::Tensor relu(torch::Tensor x);"
ext = load_inline(name="relu", cpp_sources=cpp_source, cuda_sources=cuda_source, functions=["relu"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return ext.relu(x)
'''


def evaluation(verdict: Verdict = Verdict.PASSED, message: str = "", **changes: Any) -> Evaluation:
    known = {"problem": "relu", "problem_version": "v", "device": "cuda", "size": "full", "precision": "float32"}
    return Evaluation(verdict, message, **{**known, **changes})


def mismatch(inputs: str = "as written", total: int = 2**31, **changes: Any) -> dict[str, Any]:
    worst = [
        {"index": [number, 3], "expected": 123.456789, "got": -1.5, "error": 124.956789, "allowed": 0.00314159}
        for number in range(8)
    ]
    found = {
        "tensor": "the output",
        "shape": [2, total // 2],
        "dtype": "float32",
        "inputs": inputs,
        "wrong": 12,
        "total": total,
        "nan": 2,
        "infinite": 0,
        "patterns": [{"code": "tail", "sentence": "only the rows from 5 on are wrong"}],
        "worst": worst,
    }
    return {"mismatch": {**found, **changes}}


def test_a_wrong_answer_names_the_weights_that_are_not_the_references() -> None:
    weights = {"without_counterpart": [{"name": "linear.bias", "shape": [512]}]}
    text = feedback(evaluation(Verdict.WRONG_OUTPUT, "wrong", details={**mismatch(), "weights": weights}), SOURCE)
    assert "Weights: linear.bias (512) has no counterpart in the candidate." in text.splitlines()
    assert "Weights:" not in feedback(evaluation(Verdict.WRONG_OUTPUT, "wrong", details=mismatch()), SOURCE)


def test_who_is_right_with_the_first_weights_alone_learns_how_to_be_measured() -> None:
    note = "weights fixed at construction: norm.weight are the same, …; a model whose load_state_dict takes … is ranked"
    assert f"Note: {note}" in feedback(evaluation(notes=(note,)), SOURCE)


def test_a_pass_says_what_its_figures_mean() -> None:
    text = feedback(
        evaluation(
            gradients=Gradients.MATCH,
            speedup=1.25,
            speedup_interval=Interval(1.2, 1.3),
            speedup_training=1.01,
            speedup_training_interval=Interval(0.98, 1.04),
            speedup_compiled=0.5,
            latency_ms=Latency(1.0, 1.25, 1.1, 1.35),
            roofline_share=0.4,
            roofline={"inference": Roofline(0.4, "memory", 0.4, 0.4, None, 0.1, 1, 0, 1.0, None)},
            notes=("inference: below 50 µs, launch overhead dominates", "the GPU's clock moved between 1 and 2 MHz"),
        ),
        SOURCE,
    )
    assert "Speedup of the forward over the eager reference: 1.25 (95 % interval 1.2 to 1.3). It is faster." in text
    assert "forward and backward over the eager reference: 1.01 (95 % interval 0.98 to 1.04). No difference" in text
    assert "over torch.compile: 0.5. It is slower." in text
    assert "40 % of the speed at the roofline bound of 0.4 ms, which memory sets" in text
    assert "Gradients match." in text
    assert "launch overhead dominates" in text
    assert "clock" not in text
    assert "Hint" not in text


def test_what_has_no_figure_is_told_why_and_never_that_it_is_slower() -> None:
    known = {"speedup_status": SpeedupStatus.UNSETTLED, "speedup_training_status": SpeedupStatus.NOT_VETTED}
    said = feedback(evaluation(**known), "")
    assert "Speedup of the forward: there is none yet, for the machine was too noisy to tell." in said
    assert "it has to be measured again" in said
    assert (
        "Speedup of forward and backward: there is none before the problem is vetted, nor where vetting refuses it."
        in said
    )
    assert "slower" not in said


def test_another_baseline_is_named() -> None:
    assert "over the reference by tf32: 2." in feedback(evaluation(speedup=2.0, baseline="tf32"), SOURCE)


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ('cuda.cu:7: identifier "y" is undefined', "line 7 of your source: if (i < n) y[i] = fmaxf(x[i], 0.0f);"),
        ("main.cpp:2: expected ';'", 'line 15 of your source: cpp_source = "torch::Tensor relu(torch::Tensor x);"'),
    ],
)
def test_a_compilers_error_is_told_with_the_line_of_the_candidate(message: str, line: str) -> None:
    text = feedback(evaluation(Verdict.COMPILE_ERROR, message), SOURCE)
    assert text.startswith("Verdict: compile error while compiling the extension (relu, cuda, size full, float32).")
    assert message in text
    assert line in text


def test_an_error_in_generated_code_has_no_line() -> None:
    for message in ("cuda.cu:99: no", "main.cpp:7: no", "undefined reference to `relu'"):
        assert "of your source" not in feedback(evaluation(Verdict.COMPILE_ERROR, message), SOURCE)


def test_an_exception_is_told_with_its_frames() -> None:
    message = "TypeError: no\n  candidate.py, line 21, in forward: return ext.relu(x)"
    text = feedback(evaluation(Verdict.RUNTIME_ERROR, message), SOURCE)
    assert message in text
    assert "of your source" not in text
    long = "TypeError: " + "x" * 3000 + "\n  candidate.py, line 21, in forward: return ext.relu(x)"
    assert "line 21 of your source: return ext.relu(x)" in feedback(evaluation(Verdict.RUNTIME_ERROR, long), SOURCE)


def test_a_wrong_output_is_told_with_its_worst_elements() -> None:
    text = feedback(evaluation(Verdict.WRONG_OUTPUT, "it differs", details=mismatch(total=1000)), SOURCE)
    assert "the output, float32[2, 500], inputs as written: 12 of 1000 elements are wrong (1.2 %), 2 of them" in text
    assert "Pattern: only the rows from 5 on are wrong." in text
    assert "at [0, 3] it is -1.5, expected 123.457; at [1, 3]" in text
    assert "at [4, 3]" not in text


@pytest.mark.parametrize("variant", [variant for variant in Variant if variant is not Variant.AS_WRITTEN])
def test_what_the_judge_draws_shows_no_expected_value(variant: Variant) -> None:
    text = feedback(evaluation(Verdict.WRONG_OUTPUT, "", details=mismatch(variant.value)), SOURCE)
    assert "at [0, 3] it is -1.5;" in text
    assert "123" not in text


def test_gradients_show_no_expected_value_since_the_judge_draws_what_backward_is_given() -> None:
    text = feedback(evaluation(Verdict.WRONG_GRADIENT, "", details=mismatch()), SOURCE)
    assert "at [0, 3] it is -1.5;" in text
    assert "123" not in text
    message = (
        "the gradient of input 0 differs from the reference: at [8, 7] it is -4.98617649, expected 123.25 (error 4.99, "
        "allowed 7.06e-05); 50 % of 1048576 elements are wrong (inputs: as written)"
    )
    text = feedback(evaluation(Verdict.WRONG_GRADIENT, message), SOURCE)
    assert "at [8, 7] it is -4.98617649; 50 % of" in text
    assert not any(figure in text for figure in ("123", "4.99", "7.06"))


@pytest.mark.parametrize("variant", list(Variant))
def test_no_tolerance_is_told_even_where_the_message_has_it(variant: Variant) -> None:
    actual, expected = torch.tensor([1.0, 5.0]), torch.tensor([1.0, 4.03125], dtype=torch.float64)
    tally = Tally("the output", (2,))
    tally.add(compare_slice(actual, expected, expected.float(), Tolerance(1e-4, 1e-4)))
    # As the judge puts it, and as it is where there is no memory to look closely.
    message = f"{tally.describe()} (inputs: {variant.value}); every wrong element is odd"
    assert tally.worst is not None
    allowed, error = f"{tally.worst.allowed:.3g}", f"{tally.worst.error:.3g}"
    assert allowed in message
    for details in ({}, mismatch(variant.value)):
        text = feedback(evaluation(Verdict.WRONG_OUTPUT, message, details=details), SOURCE)
        assert allowed not in text
        assert error not in text
        assert "allowed" not in text
        assert "0.00314" not in text
        assert ("4.03125" in text) == (variant is Variant.AS_WRITTEN and not details)
    assert "every wrong element is odd" in feedback(evaluation(Verdict.WRONG_OUTPUT, message), SOURCE)


@pytest.mark.parametrize(
    "message",
    [
        (
            "inner and outer clock disagree: 0.731 ms of each call lie outside of what the runner measured, 0.117 ms "
            "for the baseline, and 0.113 ms more are allowed"
        ),
        (
            "a call in 0.7310 ms is faster than this device can move the bytes of its inputs and outputs, which takes "
            "0.1170 ms at the least"
        ),
        (
            "the device was busy while every process was stopped: 73 of 117 times the judge's own steps took longer "
            "than before the candidate had the shared memory, at last 0.731 instead of 0.113 ms"
        ),
    ],
)
def test_no_limit_of_the_measurement_is_told(message: str) -> None:
    text = feedback(evaluation(Verdict.REJECTED, message), SOURCE)
    assert not any(figure in text for figure in ("731", "117", "113", "73 "))
    assert message.partition(":")[0].partition(" in ")[0] in text


def test_the_rule_that_was_broken_is_told() -> None:
    message = "input 0 was changed by the candidate: a model must not write to its inputs"
    assert message in feedback(evaluation(Verdict.REJECTED, message), SOURCE)


_UNDECLARED = "main.cpp:3: 'relu' was not declared in this scope"
_ILLEGAL = {"device_fault": "illegal memory access"}
_MISALIGNED = {"device_fault": "misaligned address"}
_NOTHING = mismatch(patterns=[{"code": "never_written", "sentence": "nothing was written there"}], total=1000)


@pytest.mark.parametrize(
    ("found", "source", "words"),
    [
        (evaluation(Verdict.LOAD_ERROR, "TypeError: load_inline() got an unexpected keyword argument 'cuda_flags'"),
         SOURCE, "load_inline has no argument cuda_flags: it takes"),
        (evaluation(Verdict.COMPILE_ERROR, 'cuda.cu:10: namespace "at" has no member "getCurrentCUDAStream"'),
         SOURCE, "#include <ATen/cuda/CUDAContext.h>"),
        (evaluation(Verdict.COMPILE_ERROR, _UNDECLARED), SOURCE, "must be declared in it"),
        (evaluation(Verdict.COMPILE_ERROR, "cuda.cu:4: expected ';'"),
         SOURCE.replace("cpp_sources=cpp_source", 'cpp_sources=""'), "must be declared in it"),
        (evaluation(Verdict.COMPILE_ERROR, "cuda.cu:4: expected ';'"),
         SOURCE.replace("cpp_sources=cpp_source", "cpp_sources=['// nothing']"), "must be declared in it"),
        (evaluation(gradients=Gradients.MISSING), SOURCE, "autograd.Function with a backward"),
        (evaluation(Verdict.WRONG_OUTPUT, details=mismatch()), SOURCE, "count in int64_t"),
        (evaluation(Verdict.WRONG_OUTPUT, details=mismatch(total=2**29)), SOURCE, "count in int64_t"),
        (evaluation(Verdict.RUNTIME_ERROR, details=_ILLEGAL), SOURCE, "count in int64_t"),
        (evaluation(Verdict.RUNTIME_ERROR, details=_MISALIGNED), SOURCE, "multiple of 16 bytes"),
        (evaluation(Verdict.RUNTIME_ERROR, "CUDA error: misaligned address"), SOURCE, "multiple of 16 bytes"),
        (evaluation(Verdict.WRONG_OUTPUT, details=_NOTHING), SOURCE, "C10_CUDA_KERNEL_LAUNCH_CHECK"),
    ],
)  # fmt: skip
def test_a_known_mistake_is_recognised(found: Evaluation, source: str, words: str) -> None:
    text = feedback(found, source)
    assert words in text
    assert text.count("Hint: ") == 1


@pytest.mark.parametrize(
    ("found", "source"),
    [
        (evaluation(gradients=Gradients.MATCH), SOURCE),
        (evaluation(Verdict.COMPILE_ERROR, "cuda.cu:4: expected ';'"), SOURCE),
        (evaluation(Verdict.COMPILE_ERROR, "cuda.cu:4: no getCurrentCUDAStream"),
         SOURCE.replace("import torch\n", 'import torch\nh = "#include <ATen/cuda/CUDAContext.h>"\n', 1)),
        (evaluation(Verdict.WRONG_OUTPUT, details=mismatch(total=1000)), SOURCE),
        (evaluation(Verdict.WRONG_OUTPUT, details=mismatch()), SOURCE.replace("int ", "int64_t ")),
        (evaluation(Verdict.RUNTIME_ERROR, details=_ILLEGAL, size="smoke"), SOURCE),
        (evaluation(Verdict.WRONG_OUTPUT, details=_NOTHING), SOURCE.replace("return y", "AT_CUDA_CHECK(0); return y")),
        (evaluation(Verdict.WRONG_OUTPUT, details=_NOTHING, device="cpu"), SOURCE),
        (evaluation(Verdict.TIMEOUT, "the call took longer than 1 s"), SOURCE),
    ],
)  # fmt: skip
def test_no_mistake_is_made_up(found: Evaluation, source: str) -> None:
    assert "Hint: " not in feedback(found, source)


def test_a_hint_that_is_there_already_is_not_given_twice() -> None:
    known = "load_inline takes extra_cuda_cflags (flags for nvcc) and extra_cflags (for the C++ compiler)"
    message = "TypeError: load_inline() got an unexpected keyword argument 'extra_cuda_flags'"
    text = feedback(evaluation(Verdict.LOAD_ERROR, message, hints=(known,)), SOURCE)
    assert text.count("Hint: ") == 1
    assert known in text
    wrapped = "wrap the kernel in a torch.autograd.Function with a backward"
    missing = evaluation(Verdict.WRONG_GRADIENT, "it carries no graph", gradients=Gradients.MISSING, hints=(wrapped,))
    assert feedback(missing, SOURCE).count("autograd.Function") == 1


def test_a_source_that_does_not_parse_is_no_obstacle() -> None:
    found = evaluation(Verdict.INVALID_SOURCE, "line 1, column 5: '(' was never closed", hints=("line 1 reads: x = (",))
    assert feedback(found, "x = (\n").splitlines() == [
        "Verdict: invalid source while reading the source (relu, cuda, size full, float32).",
        "line 1, column 5: '(' was never closed",
        "Hint: line 1 reads: x = (",
    ]
    for verdict in (Verdict.COMPILE_ERROR, Verdict.RUNTIME_ERROR, Verdict.WRONG_OUTPUT):
        feedback(evaluation(verdict, _UNDECLARED, details=_ILLEGAL), "\0 x = (\n")


@given(
    verdict=st.sampled_from([verdict for verdict in Verdict if verdict is not Verdict.PASSED]),
    message=st.text(max_size=5000),
    hints=st.lists(st.text(max_size=600), max_size=8),
    sentence=st.text(max_size=3000),
    close=st.booleans(),
)
def test_it_is_bounded_and_always_the_same(
    verdict: Verdict, message: str, hints: list[str], sentence: str, close: bool
) -> None:
    details = mismatch(patterns=[{"code": "tail", "sentence": sentence}]) if close else {}
    found = evaluation(verdict, message, hints=tuple(hints), details=details)
    text = feedback(found, SOURCE)
    assert 0 < len(text) <= MAX_CHARACTERS
    assert feedback(Evaluation.from_dict(found.to_dict()), SOURCE) == text


def test_a_very_long_source_is_not_looked_into() -> None:
    found = evaluation(Verdict.COMPILE_ERROR, 'cuda.cu:7: identifier "y" is undefined')
    assert "of your source" in feedback(found, SOURCE)
    assert "of your source" not in feedback(found, SOURCE + "# more\n" * 10_000)


def test_what_steers_a_terminal_is_replaced() -> None:
    text = feedback(evaluation(Verdict.RUNTIME_ERROR, "no\x1b[2J\u202e"), SOURCE)
    assert "no\N{REPLACEMENT CHARACTER}[2J\N{REPLACEMENT CHARACTER}" in text


def test_a_hostile_source_does_not_take_long() -> None:
    begin = time.monotonic()
    sources = ("int a =" * 7_000, 's = """' + "int a = \n" * 5_000 + '"""', "load_inline(" * 4_000, "x = 1\n" * 45_000)
    for source in sources:
        found = evaluation(Verdict.WRONG_OUTPUT, _UNDECLARED, details=mismatch())
        feedback(found, source)
        feedback(replace(found, verdict=Verdict.COMPILE_ERROR, details={}), source)
    assert time.monotonic() - begin < 10


def test_a_line_number_that_is_no_number_of_a_line_is_ignored() -> None:
    for message in (f"RuntimeError: \nmain.cpp:{'9' * 5000}: x", f"x\n  candidate.py, line {'9' * 5000}, in f: y"):
        assert feedback(evaluation(Verdict.RUNTIME_ERROR, message), SOURCE)
