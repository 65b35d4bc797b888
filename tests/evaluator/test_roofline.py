"""The roofline bound, and the share of it in a record."""

from __future__ import annotations

import json

import pytest

from evaluator.evaluation import Evaluation, Latency, Verdict
from evaluator.roofline import PeakRates, Work, bound, share_of_roofline

_CEILINGS = PeakRates(bytes_per_s=1e12, operations_per_s={"float32": 1e13, "tf32": 1e14})


def test_without_operations_memory_is_the_limit() -> None:
    found = bound(Work(bytes=2_000_000_000, operations=0), _CEILINGS, "float32")
    assert (found.bound_ms, found.limited_by, found.compute_ms, found.intensity) == (2.0, "memory", 0.0, 0.0)


def test_the_longer_of_memory_and_compute_is_the_bound() -> None:
    found = bound(Work(bytes=10**9, operations=5 * 10**10), _CEILINGS, "float32")
    assert (found.bound_ms, found.limited_by) == (5.0, "compute")
    assert (found.memory_ms, found.compute_ms, found.intensity) == (1.0, 5.0, 50.0)


def test_the_ridge_belongs_to_memory() -> None:
    assert bound(Work(bytes=10**9, operations=10**10), _CEILINGS, "float32").limited_by == "memory"


def test_the_precision_decides_the_ceiling() -> None:
    work = Work(bytes=10**9, operations=10**11)
    assert bound(work, _CEILINGS, "tf32").bound_ms == pytest.approx(bound(work, _CEILINGS, "float32").bound_ms / 10)


def test_a_precision_without_a_rate_leaves_the_bound_of_memory() -> None:
    found = bound(Work(bytes=10**9, operations=10**15), _CEILINGS, "bfloat16")
    assert (found.bound_ms, found.limited_by, found.compute_ms) == (1.0, "memory", None)


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan")])
def test_a_rate_that_is_none_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match="positive"):
        bound(Work(1, 1), PeakRates(rate, {}), "float32")
    with pytest.raises(ValueError, match="positive"):
        bound(Work(1, 1), PeakRates(1.0, {"float32": rate}), "float32")


def test_the_share_is_the_bound_over_the_latency() -> None:
    found = share_of_roofline(Work(10**9, 10**9), _CEILINGS, "float32", latency_ms=4.0)
    assert found.share == 0.25
    assert (found.bytes, found.operations, found.bytes_per_s, found.operations_per_s) == (10**9, 10**9, 1e12, 1e13)
    assert found.note("inference") is None


def test_a_share_above_one_is_explained() -> None:
    note = share_of_roofline(Work(10**9, 0), _CEILINGS, "float32", latency_ms=0.5).note("training")
    assert note is not None
    assert note.startswith("training: 0.50 of the roofline bound of 1 ms (memory)")
    assert "cache" in note


def test_a_record_keeps_its_rooflines_and_older_records_have_none() -> None:
    roofline = {"inference": share_of_roofline(Work(10**9, 10**9), _CEILINGS, "float32", 4.0)}
    evaluation = Evaluation(
        Verdict.PASSED, "", "relu", "1", "cuda", "full", "float32", speedup=1.0,
        latency_ms=Latency(4.0, 4.0, 4.1, 4.1), roofline=roofline, roofline_share=0.25,
    )  # fmt: skip
    data = json.loads(json.dumps(evaluation.to_dict()))
    assert Evaluation.from_dict(data) == evaluation
    del data["roofline"]
    assert Evaluation.from_dict(data).roofline == {}
