"""How a wrong tensor is described: the pattern that is there, none that is not, and bounded evidence of it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluator.candidates.candidate import Candidate, parse_candidate
from evaluator.config import EvalConfig, SamplingPlan
from evaluator.engine import Engine
from evaluator.evaluation import Evaluation, Verdict
from evaluator.judge.correctness.compare import Tally, compare_slice
from evaluator.judge.correctness.evidence import mismatch
from evaluator.judge.correctness.evidence.mismatch import Evidence
from evaluator.problems.problem import Problem, Tolerance

_TOLERANCE = Tolerance(atol=1e-4, rtol=1e-4)


def _random(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _examined(actual: torch.Tensor, expected: torch.Tensor, rows: int | None = None) -> Evidence:
    """Evidence of ``actual``, compared as the judge compares it, ``rows`` at a time."""
    tally = Tally("the output", tuple(expected.shape))
    step = rows or max(1, expected.shape[0] if expected.dim() else 1)
    pieces = [(actual, expected)] if not expected.dim() else zip(actual.split(step), expected.split(step), strict=True)
    for got, wanted in pieces:
        near = wanted.to(actual.dtype)
        found = compare_slice(got, wanted, near, _TOLERANCE)
        tally.add(found)
        if found.right < found.total:
            tally.examine(got, wanted, near, _TOLERANCE)
    assert tally.evidence is not None
    assert tally.evidence.wrong == tally.total - tally.right
    return tally.evidence


def _codes(actual: torch.Tensor, expected: torch.Tensor, rows: int | None = None) -> list[str]:
    return [pattern.code for pattern in _examined(actual, expected, rows).patterns()]


def _sentences(actual: torch.Tensor, expected: torch.Tensor) -> str:
    return "; ".join(pattern.sentence for pattern in _examined(actual, expected).patterns())


def _changed(expected: torch.Tensor, change: Callable[[torch.Tensor], object]) -> torch.Tensor:
    actual = expected.float().clone()
    change(actual)
    return actual


@pytest.mark.parametrize("rows", [None, 7])
@pytest.mark.parametrize(
    ("make", "codes"),
    [
        (lambda e: torch.full_like(e, math.nan), ["nan"]),
        (lambda e: torch.full_like(e, -math.inf), ["infinite"]),
        (torch.zeros_like, ["zeros"]),
        (lambda e: torch.full_like(e, 7.5), ["constant"]),
        (lambda e: -e, ["sign"]),
        (lambda e: 2 * e, ["factor"]),
        (lambda e: e / 3, ["factor"]),
        (lambda e: e + 0.25, ["offset"]),
        (lambda e: e.roll(1, 0), ["shifted"]),
        (lambda e: e.roll(-1, 1), ["shifted"]),
        (lambda e: e[:1].expand_as(e).clone(), ["repeated", "stretch"]),
        (lambda e: e.bfloat16().double(), ["reduced_precision"]),
    ],
)
def test_what_is_wrong_with_the_values_is_seen(
    make: Callable[[torch.Tensor], torch.Tensor], codes: list[str], rows: int | None
) -> None:
    expected = _random(96, 130)
    found = _codes(make(expected).float(), expected, rows)
    assert found[:1] == codes[:1]


def test_a_factor_an_offset_and_a_shift_are_named() -> None:
    expected = _random(64, 50)
    assert "0.125 times what is expected" in _sentences((expected / 8).float(), expected)
    assert "off by -1.5" in _sentences((expected - 1.5).float(), expected)
    assert "what belongs to the row before it" in _sentences(expected.roll(1, 0).float(), expected)
    assert "what belongs to the column after it" in _sentences(expected.roll(-1, 1).float(), expected)


@pytest.mark.parametrize("shape", [(64, 64), (3, 40, 56)])
def test_a_transposed_result_is_seen(shape: tuple[int, ...]) -> None:
    expected = _random(*shape)
    actual = expected.transpose(-1, -2).contiguous().view(shape).float()
    assert _codes(actual, expected)[0] == "transposed"


def test_values_in_other_places_are_seen_even_in_slices() -> None:
    expected = _random(200, 31)
    order = torch.randperm(expected.numel(), generator=torch.Generator().manual_seed(3))
    actual = expected.view(-1)[order].view_as(expected).float()
    assert _codes(actual, expected)[0] == "permuted"
    assert _codes(actual, expected, rows=9)[0] == "permuted"


def test_what_was_never_written_still_has_the_pattern() -> None:
    expected = _random(64, 32)
    actual = expected.float()
    words = torch.full((64 * 16,), 0x3C5A_1234_4789_ABCD, dtype=torch.int64).view(torch.float32).view(64, 32)
    actual[48:] = words[48:]
    assert _codes(actual, expected) == ["never_written", "tail"]


@pytest.mark.parametrize("rows", [None, 10])
@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        (lambda t: t[96:].zero_(), "tail", "rows from 96 on, a multiple of 32, are wrong: the last 4 of 100"),
        (lambda t: t[:, 40:].add_(_random(100, 10).float()), "tail", "columns from 40 on"),
        (lambda t: t[:3].add_(_random(3, 50).float()), "head", "first 3 of 100 rows"),
        (lambda t: t[17].add_(_random(50).float()), "one_index", "only row 17 is wrong"),
        (lambda t: t[:, 4].add_(_random(100).float()), "one_index", "only column 4 is wrong"),
        (lambda t: t[20:30].add_(_random(10, 50).float()), "stretch", "rows from 20 to 29"),
        (lambda t: t[:, 3::4].add_(_random(100, 12).float()), "every_nth", "every 4th column, from 3 on"),
        (lambda t: t[::2].add_(_random(50, 50).float()), "every_nth", "every second row"),
        (lambda t: t[20:30, 7:9].add_(_random(10, 2).float()), "block", "rows 20 to 29 and columns 7 to 8"),
        (lambda t: t.view(-1)[2475:2540].add_(_random(65).float()), "stretch", "elements from 2475 to 2539"),
    ],
)
def test_where_it_is_wrong_is_seen(
    change: Callable[[torch.Tensor], object], code: str, words: str, rows: int | None
) -> None:
    expected = 5 + _random(100, 50, seed=2)
    place = _examined(_changed(expected, change), expected, rows).patterns()[-1]
    assert place.code == code
    assert words in place.sentence


def test_all_but_every_nth_is_seen() -> None:
    expected = _random(90, 20)
    keep = torch.arange(90) % 3 == 0
    actual = torch.where(keep[:, None], expected, torch.zeros(())).float()
    assert _codes(actual, expected) == ["zeros", "all_but_every_nth"]


def test_a_long_vector_shows_its_tail_and_every_nth_element() -> None:
    expected = 3 + _random(100_000)
    assert _codes(_changed(expected, lambda t: t[99_840:].zero_()), expected) == ["zeros", "tail"]
    sentence = _sentences(_changed(expected, lambda t: t[5::8].zero_()), expected)
    assert "every 8th element in memory order, from 5 on" in sentence


def test_one_channel_is_named_by_its_dimension() -> None:
    expected = _random(4, 8, 6, 6)
    actual = _changed(expected, lambda t: t[:, 5].mul_(0.5))
    pattern = _examined(actual, expected).patterns()
    assert [found.code for found in pattern] == ["factor", "one_index"]
    assert "only index (dimension 1) 5 is wrong" in pattern[1].sentence


def test_a_place_that_is_right_by_chance_in_half_is_still_seen() -> None:
    expected = _random(64, 64).clamp_min(0)
    assert _codes(_changed(expected, lambda t: t[50:].zero_()), expected) == ["zeros", "tail"]


@pytest.mark.parametrize(("bits", "kept"), [(13, "TF32 or float16"), (16, "bfloat16")])
def test_products_in_less_precision_look_like_it(bits: int, kept: str) -> None:
    def shorten(values: torch.Tensor) -> torch.Tensor:
        rounded = values.view(torch.int32).add(1 << (bits - 1)).bitwise_and(-1 << bits)
        return rounded.view(torch.float32)

    a, b = _random(128, 256).float(), _random(256, 96, seed=5).float()
    expected = a.double() @ b.double()
    actual = (shorten(a).double() @ shorten(b).double()).float()
    found = _examined(actual, expected).patterns()
    assert found[0].code == "reduced_precision"
    assert kept in found[0].sentence


@pytest.mark.parametrize("after", [torch.relu, lambda y: y, lambda y: y + 1.0], ids=["relu", "nothing", "shift"])
@pytest.mark.parametrize("summed", [16, 64, 1024])
def test_products_of_numbers_that_are_cut_off_look_like_it(
    after: Callable[[torch.Tensor], torch.Tensor], summed: int
) -> None:
    def cut_off(values: torch.Tensor) -> torch.Tensor:
        return values.view(torch.int32).bitwise_and(-1 << 13).view(torch.float32)

    a, b = _random(256, summed).float(), _random(summed, 256, seed=5).float() / summed**0.5
    expected = after(a.double() @ b.double())
    actual = after(cut_off(a).double() @ cut_off(b).double()).float()
    (found,) = _examined(actual, expected).patterns()
    assert found.code == "reduced_precision"
    assert "tl.dot" in found.sentence


@pytest.mark.parametrize("right", [1, 3, 40])
def test_where_nearly_all_is_wrong_its_first_and_last_element_are_no_place(right: int) -> None:
    expected = _random(1 << 17)
    actual = _changed(expected + 0.3 * _random(1 << 17, seed=9), lambda t: t[:right].copy_(expected[:right]))
    assert _codes(actual, expected) == []


def test_some_rows_that_are_right_by_chance_are_no_place() -> None:
    expected = _random(4096, 2)
    actual = (expected + 0.3 * _random(4096, 2, seed=9)).float()
    actual[0] = expected[0].float()
    actual[100:4000:7] = expected[100:4000:7].float()
    assert _codes(actual, expected) == []


def test_a_factor_of_one_is_no_factor() -> None:
    expected = 3 + _random(1000).abs()
    noise = 1 + 2.5e-4 * _random(1000, seed=3).sign()
    assert "factor" not in _codes((expected * noise).float(), expected)
    assert "offset" not in _codes((expected + 1e-3 * _random(1000, seed=3).sign()).float(), expected)
    assert "1.0004 times" in _sentences((expected * 1.0004).float(), expected)


def test_random_errors_have_no_pattern() -> None:
    expected = _random(100, 100)
    assert _codes((expected + 0.3 * _random(100, 100, seed=9)).float(), expected) == []


def test_the_wrong_answer_of_another_model_has_no_pattern() -> None:
    expected = _random(100, 100)
    assert _codes(_random(100, 100, seed=7).float(), expected) == []


def test_a_single_wrong_element_is_called_so() -> None:
    expected = _random(10, 10)
    assert _codes(_changed(expected, lambda t: t[3, 4].add_(1)), expected) == ["single"]


def test_integers_must_be_equal() -> None:
    expected = torch.arange(1000).view(10, 100)
    actual = expected.clone()
    actual[:, -3:] += 1
    assert _codes(actual, expected) == ["offset", "tail"]
    assert _codes(torch.zeros_like(expected), expected)[0] == "zeros"


def test_a_scalar_is_described() -> None:
    found = _examined(torch.tensor(2.0), torch.tensor(1.0, dtype=torch.float64)).describe("x", "signed")
    assert found["worst"][0]["index"] == []
    assert found["patterns"] == []


def test_the_worst_elements_come_first_with_their_places() -> None:
    expected = torch.ones(20, 30, dtype=torch.float64)
    actual = expected.float()
    for number in range(10):
        actual[2 * number, 3 * number] += 1 + number
    found = _examined(actual, expected, rows=3).describe("the output", "signed")
    assert [element["index"] for element in found["worst"]] == [[2 * n, 3 * n] for n in range(9, 1, -1)]
    assert found["worst"][0] == {"index": [18, 27], "expected": 1.0, "got": 11.0, "error": 10.0, "allowed": 0.0002}
    assert (found["wrong"], found["total"], found["dtype"]) == (10, 600, "float32")


def test_what_is_not_finite_can_be_written_as_json() -> None:
    expected = _random(8, 8)
    actual = _changed(expected, lambda t: t[0].fill_(math.nan))
    actual[1, 1] = math.inf
    found = _examined(actual, expected).describe("the output", "signed")
    text = json.dumps(found, allow_nan=False)
    assert json.loads(text)["worst"][0]["got"] == "nan"
    assert (found["nan"], found["infinite"]) == (8, 1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.uint8, torch.bool])
def test_every_dtype_is_examined(dtype: torch.dtype) -> None:
    expected = torch.ones(40, 8, dtype=dtype)
    wanted = expected.double() if dtype.is_floating_point else expected
    actual = expected.clone()
    actual[32:] = 0
    assert _codes(actual, wanted) == ["zeros", "tail"]


def test_nothing_depends_on_how_much_is_looked_at_in_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = _random(50, 40)
    actual = _changed(expected, lambda t: t[:, 1::4].mul_(3))
    whole = _examined(actual, expected).describe("x", "signed")
    monkeypatch.setitem(mismatch._PIECE, "cpu", 77)
    assert _examined(actual, expected).describe("x", "signed") == whole


@pytest.mark.parametrize(
    ("change", "codes"),
    [
        (lambda t: t[90:].zero_(), ["zeros", "tail"]),
        (lambda t: t[:, 1::4].mul_(3), ["factor", "every_nth"]),
        (lambda t: t.add_(0.25), ["offset"]),
        (lambda t: t.fill_(math.nan), ["nan"]),
        (lambda t: t[99].fill_(math.inf), ["infinite", "tail"]),
        (lambda t: t.copy_(t.roll(1, 0)), ["shifted"]),
        (lambda t: t.copy_(t.bfloat16()), ["reduced_precision"]),
    ],
)
@pytest.mark.parametrize("rows", [None, 30])
def test_every_wrong_element_of_a_large_tensor_counts_and_some_are_looked_at(
    change: Callable[[torch.Tensor], object], codes: list[str], rows: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = 5 + _random(100, 40)
    actual = _changed(expected, change)
    whole = _examined(actual, expected, rows).describe("x", "signed")
    monkeypatch.setitem(mismatch._PIECE, "cpu", 77)
    monkeypatch.setattr(mismatch, "_EXAMINED", 800)
    found = _examined(actual, expected, rows)
    assert [pattern.code for pattern in found.patterns()] == codes
    described = found.describe("x", "signed")
    for name in ("wrong", "nan", "infinite"):
        assert described[name] == whole[name]
    assert [each["error"] for each in described["worst"]] == [each["error"] for each in whole["worst"]]
    assert found._examined < found.wrong or found.wrong <= 77


def test_later_slices_of_a_tensor_that_is_mostly_wrong_are_counted_without_widened_limits() -> None:
    expected = _random(90, 50)
    actual = (1.5 * expected).float()
    tally = Tally("the output", (90, 50))
    for first in range(0, 90, 30):
        got, wanted = actual[first : first + 30], expected[first : first + 30]
        if first:
            assert tally.add_clearly_wrong(got, wanted, _TOLERANCE)
            continue
        assert not tally.add_clearly_wrong(got, wanted, _TOLERANCE)  # nothing is wrong so far
        tally.add(compare_slice(got, wanted, wanted.float(), _TOLERANCE))
        tally.examine(got, wanted, wanted.float(), _TOLERANCE)
        assert not tally.add_clearly_wrong(wanted.float(), wanted, _TOLERANCE)
    assert tally.evidence is not None
    assert tally.evidence.wrong == tally.wrong == 90 * 50
    assert [pattern.code for pattern in tally.evidence.patterns()] == ["factor"]
    worst = (actual - expected).abs().div(1e-4 * (expected.abs() + expected.square().mean().sqrt()))
    assert tally.evidence.describe("x", "mixed")["worst"][0]["index"] == [*divmod(int(worst.argmax()), 50)]


def test_the_sample_does_not_grow_with_the_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mismatch, "_SAMPLE", 100)
    expected = _random(3000, 3)
    assert _examined((2 * expected).float(), expected, rows=50).patterns()[0].code == "factor"


def test_without_memory_to_look_closely_the_verdict_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def out_of_memory(*_arguments: object) -> None:
        raise torch.OutOfMemoryError("none left")

    monkeypatch.setattr(Evidence, "add", out_of_memory)
    expected = torch.ones(4, 4, dtype=torch.float64)
    tally = Tally("the output", (4, 4))
    for _ in range(2):
        actual = torch.zeros(2, 4)
        tally.add(compare_slice(actual, expected[:2], expected[:2].float(), _TOLERANCE))
        tally.examine(actual, expected[:2], expected[:2].float(), _TOLERANCE)
    assert tally.evidence is None
    assert not tally.passed


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_whatever_is_wrong_is_counted_and_can_be_written_down(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=4)))
    expected = _random(*shape)
    actual = expected.float()
    flat = actual.view(-1)
    places = data.draw(st.sets(st.integers(0, flat.numel() - 1), min_size=1))
    for place in places:
        flat[place] = data.draw(st.sampled_from([math.nan, math.inf, 1e30, -1e30, 99.0]))
    found = _examined(actual, expected, data.draw(st.integers(1, 7))).describe("x" * 1000, "signed")
    assert found["wrong"] == len(places)
    assert 1 <= len(found["worst"]) <= 8
    assert len(found["patterns"]) <= 2
    assert len(json.dumps(found, allow_nan=False)) < 4000
    for element in found["worst"]:
        place = 0
        for index, extent in zip(element["index"], shape, strict=True):
            place = place * extent + index
        assert place in places


@settings(max_examples=60, deadline=None)
@given(first=st.integers(1, 199), columns=st.integers(2, 9), rows=st.integers(1, 60))
def test_any_tail_is_found_wherever_slices_are_cut(first: int, columns: int, rows: int) -> None:
    expected = 2 + _random(200, columns).abs()
    found = _examined(_changed(expected, lambda t: t[first:].zero_()), expected, rows).patterns()
    assert [pattern.code for pattern in found] == ["zeros", "tail"]
    assert ("only row 199" if first == 199 else f"rows from {first} on") in found[1].sentence


_CONFIG = EvalConfig(device="cpu", size="smoke", sampling=SamplingPlan(trials=2, gradient_trials=1, max_samples=3))


def _evaluated(engine: Engine, problem: Problem, body: str) -> Evaluation:
    candidate = parse_candidate(code=f"import torch\n\n\nclass ModelNew(torch.nn.Module):\n{body}")
    assert isinstance(candidate, Candidate)
    return engine.evaluate(problem, candidate, _CONFIG)


def test_an_evaluation_says_where_its_output_is_wrong(cpu_engine: Engine, problems: dict[str, Problem]) -> None:
    body = "    def forward(self, x):\n        y = torch.relu(x)\n        y[-3:] = 0\n        return y\n"
    evaluation = _evaluated(cpu_engine, problems["relu"], body)
    assert evaluation.verdict is Verdict.WRONG_OUTPUT
    found = evaluation.details["mismatch"]
    assert [pattern["code"] for pattern in found["patterns"]] == ["zeros", "tail"]
    assert "the last 3 of" in evaluation.message
    assert found["tensor"] == "the output"
    assert found["worst"][0]["got"] == 0
    assert Evaluation.from_dict(json.loads(json.dumps(evaluation.to_dict(), allow_nan=False))) == evaluation


def test_an_evaluation_says_how_its_gradient_is_wrong(cpu_engine: Engine, problems: dict[str, Problem]) -> None:
    body = "    def forward(self, x):\n        y = torch.relu(x)\n        return y.detach() + 3 * (y - y.detach())\n"
    evaluation = _evaluated(cpu_engine, problems["relu"], body)
    assert evaluation.verdict is Verdict.WRONG_GRADIENT
    found = evaluation.details["mismatch"]
    assert found["tensor"] == "the gradient of input 0"
    assert found["patterns"][0] == {"code": "factor", "sentence": "every wrong element is 3 times what is expected"}


def test_an_evaluation_that_passes_has_nothing_of_it(cpu_engine: Engine, problems: dict[str, Problem]) -> None:
    evaluation = _evaluated(cpu_engine, problems["relu"], "    def forward(self, x):\n        return torch.relu(x)\n")
    assert evaluation.verdict is Verdict.PASSED
    assert "mismatch" not in evaluation.details
    assert "kernels" not in evaluation.details
