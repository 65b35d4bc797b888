"""Two batches, compared over HTTP, on pages and by the clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from api.app import create_app
from evaluator.evaluation import Verdict
from evaluator.problems.problem import Problem
from runtime.settings import Settings
from tests.api.conftest import assert_problem, fields
from tests.api.inmemory import running
from tests.api.outline import page
from tests.api.seeds import SOURCE, Seeds, failed, passed

Graded = Callable[..., str]


def grade(http: httpx.Client, seeds: Seeds, speedups: dict[str, float | None], **changes: Any) -> str:
    """A batch with a candidate for each problem, of this speedup; ``None`` is a wrong one. Returns its id."""
    mark = len(http.get("/api/v1/batches", params={"limit": 100}).json()["items"])
    evaluated = changes.pop("evaluation", {})
    lines = [
        {"problem": problem, "device": "cpu", "size": "smoke", "code": f"{SOURCE}# {mark} {problem}\n", **changes}
        for problem in speedups
    ]
    body = {"name": f"batch {mark}", "submissions": lines}
    batch = http.post("/api/v1/batches", json=body).json()
    assert batch["items"] == len(speedups), batch
    for row in http.get("/api/v1/submissions", params={"status": "queued", "limit": 200}).json()["items"]:
        problem, speedup = seeds.problems[row["problem"]], speedups[row["problem"]]
        wrong = failed(problem, Verdict.WRONG_OUTPUT, "wrong", **evaluated)
        right = passed(problem, speedup=speedup, size=row["size"], **evaluated)
        seeds.evaluate(row["id"], wrong if speedup is None else right)
    return str(batch["id"])


@pytest.fixture
def graded(http: httpx.Client, seeds: Seeds) -> Graded:
    """Hands in a batch and grades it."""
    return lambda speedups, **changes: grade(http, seeds, speedups, **changes)


def test_differences_are_of_the_problems_of_both(settings: Settings, problems: dict[str, Problem]) -> None:
    app = create_app(settings)
    with running(app) as transport, httpx.Client(transport=transport, base_url="http://testserver") as http:
        seeds = Seeds(app.state.services.sessions, problems)
        batch = grade(http, seeds, {"relu": 2.0, "gelu": 1.5, "softmax": None, "gemm": 3.0})
        other = grade(http, seeds, {"relu": 1.2, "gelu": None, "softmax": None, "moments": 3.0})
        answer = http.get(f"/api/v1/batches/{batch}/comparison", params={"other": other})
        assert answer.status_code == 200, answer.text
        found = answer.json()
        assert found["problems"] == ["gelu", "relu", "softmax"]
        assert (found["batch"]["only"], found["other"]["only"]) == (["gemm"], ["moments"])
        assert (found["batch"]["id"], found["other"]["candidates"], found["unequal"]) == (batch, 3, 0)
        assert found["batch"]["device_names"] == found["other"]["device_names"] == ["a processor"]
        (at_one,) = [each for each in found["fast_p"] if each["p"] == 1]
        assert (at_one["batch"], at_one["other"]) == pytest.approx((2 / 3, 1 / 3))
        assert at_one["difference"] == pytest.approx(1 / 3)
        assert at_one["interval"]["low"] < 0 < 1 / 3 < at_one["interval"]["high"]
        assert [at_one[name] for name in ("both", "batch_only", "other_only", "neither")] == [1, 1, 0, 1]
        assert {each["k"] for each in found["pass_at_k"]} == {1}
        assert http.get(f"/api/v1/batches/{batch}/comparison", params={"other": other}).json() == found
        assert (
            http.get(f"/api/v1/batches/{batch}").json()["links"]["comparison"] == f"/api/v1/batches/{batch}/comparison"
        )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tier": "quick"}, "relu has tier full and quick"),
        ({"size": "medium"}, "relu has size medium and smoke"),
        ({"baseline": "compile"}, "relu has baseline compile and eager"),
        ({"limits": {"call_s": 5}}, "relu has limits call_s=5 and default"),
        ({"require_gradients": True}, "relu has require_gradients default and true"),
        ({"device": "cuda"}, "relu has device cpu and cuda"),
        ({"precision": "bfloat16"}, "relu has precision bfloat16 and float32"),
    ],
)
def test_batches_of_other_conditions_are_not_compared(
    http: httpx.Client, graded: Graded, changes: dict[str, Any], message: str
) -> None:
    ours, apart = graded({"relu": 2.0, "gelu": 2.0}), graded({"gelu": 2.0})
    theirs = {"submissions": [{"problem": "relu", "device": "cpu", "code": SOURCE, **changes}]}
    other = http.post("/api/v1/batches", json=theirs).json()["id"]
    problem = assert_problem(http.get(f"/api/v1/batches/{ours}/comparison", params={"other": other}), 409)
    assert message in str(problem["detail"])
    assert message in page(http, f"/batches/{ours}/comparison?other={other}")
    # Conditions of a problem that only one has do not matter.
    assert http.get(f"/api/v1/batches/{apart}/comparison", params={"other": other}).json()["problems"] == []


def test_a_batch_that_mixes_tiers_at_a_problem_is_not_compared(http: httpx.Client, graded: Graded) -> None:
    lines = [{"problem": "relu", "device": "cpu", "code": SOURCE, "tier": tier} for tier in ("full", "check")]
    mixed = http.post("/api/v1/batches", json={"submissions": lines}).json()["id"]
    answer = http.get(f"/api/v1/batches/{mixed}/comparison", params={"other": mixed})
    assert "relu has tier check and full" in str(assert_problem(answer, 409)["detail"])


def test_the_other_batch_must_be_named_and_exist(http: httpx.Client, graded: Graded) -> None:
    batch = graded({"relu": 2.0})
    assert_problem(http.get(f"/api/v1/batches/{batch}/comparison", params={"other": "bat_none"}), 404)
    assert fields(assert_problem(http.get(f"/api/v1/batches/{batch}/comparison"), 422)) == {"other"}
    assert_problem(http.get("/api/v1/batches/bat_none/comparison", params={"other": batch}), 404)


def test_a_page_shows_the_differences_and_what_is_odd_about_them(http: httpx.Client, graded: Graded) -> None:
    names = ["relu", "gelu", "softmax", "gemm", "moments", "layer_norm", "rms_norm", "conv2d_bias_relu"]
    batch = graded(dict.fromkeys(names, 2.0))
    other = graded(dict.fromkeys(names), evaluation={"environment": {"device_name": "another"}})
    assert f'href="/batches/{batch}/comparison"' in page(http, f"/batches/{batch}")
    chooser = page(http, f"/batches/{batch}/comparison")
    assert f'<option value="{other}">batch 1</option>' in chooser
    assert f'value="{batch}"' not in chooser
    there = page(http, f"/batches/{batch}/comparison?other={other}")
    for words in ("+100.0", "higher", "pass@1", "The devices differ", "on 8 problems"):
        assert words in there, words
    back = page(http, f"/batches/{other}/comparison?other={batch}")
    for words in ("\N{MINUS SIGN}100.0", "lower"):
        assert words in back, words
    apart = graded({"group_norm": 1.0})
    assert "no problem in common" in page(http, f"/batches/{batch}/comparison?other={apart}")
