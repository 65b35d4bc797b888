"""Bytes and operations of references, counted by hand and by the judge."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from evaluator.judge.correctness.reference import Reference
from evaluator.judge.device.cpu import CpuDevice
from evaluator.judge.timing.flop_count import count_work, known_work, work_of
from evaluator.problems.problem import Problem
from evaluator.roofline import Work


def _meta(*shape: int) -> torch.Tensor:
    return torch.empty(*shape, device="meta", requires_grad=True)


class _Calls(nn.Module):
    """A model from a function."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *arguments: Any) -> Any:
        return self.function(*arguments)


def _inference(function: Any, *arguments: Any) -> Work:
    return work_of(_Calls(function), arguments, training=False)["inference"]


@pytest.fixture(scope="module")
def device() -> CpuDevice:
    return CpuDevice()


def test_relu_reads_and_writes_each_element_once_and_twice_with_gradients(
    problems: dict[str, Problem], device: CpuDevice
) -> None:
    reference = Reference(problems["relu"], "full", "float32", device)
    work = count_work(reference, list, training=True)
    tensor = 4096 * 393216 * 4
    assert work == {"inference": Work(2 * tensor, 0), "training": Work(4 * tensor, 0)}


def test_a_signature_says_whether_there_are_matrix_products(problems: dict[str, Problem], device: CpuDevice) -> None:
    expected = {"relu": False, "conv2d_bias_relu": False, "linear_relu_divide": True, "batched_matmul": True}
    found = {name: Reference(problems[name], "smoke", "float32", device).signature.products for name in expected}
    assert found == expected


def test_a_reference_that_cannot_be_looked_at_for_products_is_none_the_worse(
    problems: dict[str, Problem], device: CpuDevice
) -> None:
    problem = problems["linear_relu_divide"]
    looks = "        assert _get_current_dispatch_mode() is None\n"
    shy = "from torch.utils._python_dispatch import _get_current_dispatch_mode\n" + re.sub(
        r"(def forward\(.*\n)", lambda match: match[1] + looks, problem.source
    )
    signature = Reference(replace(problem, source=shy), "smoke", "float32", device).signature
    expected = Reference(problem, "smoke", "float32", device).signature
    assert expected.products
    assert signature == replace(expected, products=False)


def test_a_linear_layer_is_counted_as_its_formula_says(problems: dict[str, Problem], device: CpuDevice) -> None:
    reference = Reference(problems["linear_relu_divide"], "full", "float32", device)
    work = count_work(reference, list, training=True)
    m, n, k = 1024, 8192, 8192
    weights = 4 * (n * k + n)
    assert work["inference"] == Work(4 * (m * k + m * n) + weights, 2 * m * n * k)
    # Twice the product again for the gradients of input and weight; upstream read, gradients written.
    assert work["training"] == Work(4 * (2 * m * k + 2 * m * n) + 2 * weights, 6 * m * n * k)


def test_half_precision_halves_the_bytes(problems: dict[str, Problem], device: CpuDevice) -> None:
    full, half = (
        count_work(Reference(problems["linear_relu_divide"], "smoke", name, device), list, training=True)
        for name in ("float32", "bfloat16")
    )
    for track in ("inference", "training"):
        assert full[track].bytes == 2 * half[track].bytes
        assert full[track].operations == half[track].operations


def test_an_argument_that_is_not_used_is_not_counted() -> None:
    assert _inference(lambda x, _unused: x + 1, _meta(8, 8), _meta(512, 512)).bytes == 2 * 8 * 8 * 4


def test_an_argument_that_is_read_twice_is_counted_once() -> None:
    assert _inference(lambda x: x * torch.sigmoid(x), _meta(8, 8)).bytes == 2 * 8 * 8 * 4


def test_of_a_view_only_what_it_shows_is_counted() -> None:
    assert _inference(lambda x: x[:, :3] + 1, _meta(8, 64)).bytes == 2 * 8 * 3 * 4


def test_views_that_overlap_are_never_more_than_the_whole() -> None:
    assert _inference(lambda x: sum(x[i : i + 32] * 1.0 for i in range(32)), _meta(64)).bytes == (64 + 32) * 4


def test_shapes_are_not_read() -> None:
    assert _inference(torch.zeros_like, _meta(64, 64)).bytes == 64 * 64 * 4


def test_an_expanded_output_is_as_large_as_what_is_behind_it() -> None:
    assert _inference(lambda x: (x * 2).expand(100, 16), _meta(16)).bytes == 2 * 16 * 4


def test_an_output_that_is_the_input_is_written_nevertheless() -> None:
    # Not read, because no operator is involved: a bound may be too low, and must not be too high.
    assert _inference(lambda x: x, _meta(16)).bytes == 16 * 4


def test_shared_weights_are_counted_once() -> None:
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(16, 16, bias=False), nn.Linear(16, 16, bias=False))
    model[1].weight = model[0].weight
    assert work_of(model, [_meta(4, 16)], training=False)["inference"].bytes == (16 * 16 + 2 * 4 * 16) * 4


def test_buffers_that_are_used_are_read() -> None:
    with torch.device("meta"):
        model = nn.BatchNorm1d(16).eval()
    found = work_of(model, [_meta(4, 16)], training=False)["inference"]
    assert found.bytes == (2 * 4 * 16 + 4 * 16) * 4


def test_of_an_embedding_the_rows_that_are_looked_up_are_read() -> None:
    with torch.device("meta"):
        model = nn.Embedding(10_000, 16)
    indices = torch.empty(5, device="meta", dtype=torch.int64)
    found = work_of(model, [indices], training=True)
    rows = 5 * 16 * 4
    assert found["inference"] == Work(5 * 8 + 2 * rows, 0)
    # The gradient of the table is dense, as autograd makes it.
    assert found["training"].bytes == 5 * 8 + 3 * rows + 10_000 * 16 * 4


def test_more_lookups_than_rows_read_the_table_once() -> None:
    with torch.device("meta"):
        model = nn.Embedding(10, 16)
    indices = torch.empty(1000, device="meta", dtype=torch.int64)
    assert work_of(model, [indices], training=False)["inference"].bytes == 1000 * 8 + 10 * 64 + 1000 * 64


def test_two_gathers_from_one_table_add_up() -> None:
    indices = torch.empty(3, device="meta", dtype=torch.int64)
    found = _inference(lambda x, i: x[i] + x.index_select(0, i), _meta(1000, 4), indices)
    assert found.bytes == 2 * 3 * 16 + 3 * 8 + 3 * 16


def test_an_embedding_bag_reads_its_rows() -> None:
    with torch.device("meta"):
        model = nn.EmbeddingBag(1000, 4, mode="sum")
    found = work_of(model, [torch.empty(6, 2, device="meta", dtype=torch.int64)], training=False)["inference"]
    # Indices, twelve rows, six sums, and the offsets that torch makes up for itself are no tensor of ours.
    assert found.bytes == 12 * 8 + 12 * 16 + 6 * 16


def test_convolution_and_attention_have_operations() -> None:
    with torch.device("meta"):
        convolution = nn.Conv2d(3, 8, 3, bias=False)
    found = work_of(convolution, [_meta(2, 3, 16, 16)], training=True)
    operations = 2 * (2 * 14 * 14) * 8 * 3 * 9
    assert (found["inference"].operations, found["training"].operations) == (operations, 3 * operations)
    q = _meta(2, 4, 16, 32)
    attention = _inference(lambda x: nn.functional.scaled_dot_product_attention(x, x, x), q)
    assert attention.operations == 2 * (2 * 2 * 4 * 16 * 16 * 32)


def test_a_gradient_that_does_not_exist_is_not_written() -> None:
    found = work_of(_Calls(lambda x, y: x * 2 + y.detach()), [_meta(8), _meta(8)], training=True)
    assert found["inference"].bytes == 3 * 8 * 4
    assert found["training"].bytes == 3 * 8 * 4 + 2 * 8 * 4


def test_a_reference_is_constructed_on_the_processors_that_are_named(
    problems: dict[str, Problem], device: CpuDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed, threads = os.sched_getaffinity(0), torch.get_num_threads()
    reference = Reference(problems["linear_relu_divide"], "smoke", "float32", device)
    seen: list[tuple[int, set[int]]] = []
    build = reference._make

    def building(seed: int) -> nn.Module:
        seen.append((torch.get_num_threads(), os.sched_getaffinity(0)))
        return build(seed)

    monkeypatch.setattr(reference, "_make", building)
    reference.construct(7, frozenset({min(allowed)}))
    assert seen[0] == (1, {min(allowed)})
    assert (torch.get_num_threads(), os.sched_getaffinity(0)) == (threads, allowed)


def test_work_is_counted_once_for_each_key_and_anew_after_an_error() -> None:
    counted: list[int] = []

    def count() -> dict[str, Work]:
        counted.append(len(counted))
        if not counted[-1]:
            raise RuntimeError("not today")
        return {"inference": Work(counted[-1], 0)}

    one, other = object(), object()
    with pytest.raises(RuntimeError, match="not today"):
        known_work(one, count)
    for key, expected in ((one, 1), (one, 1), (other, 2), (one, 1)):
        assert known_work(key, count) == {"inference": Work(expected, 0)}
    assert counted == [0, 1, 2]


def test_an_operator_that_the_meta_device_lacks_is_counted_on_the_device(
    problems: dict[str, Problem], device: CpuDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = Reference(problems["linear_relu_divide"], "smoke", "float32", device)
    expected = count_work(reference, list, training=True)
    reference.construct(7, frozenset(os.sched_getaffinity(0)))

    def fails() -> Any:
        raise NotImplementedError("no such operator on meta")

    monkeypatch.setattr(reference, "on_meta", fails)
    assert count_work(reference, reference.get_inputs, training=True) == expected
