"""Rewards: from verdicts to numbers, the trainers' ways of calling, and many at a time against a real service."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.evaluation import Verdict
from kerneljudge.async_client import AsyncClient
from kerneljudge.errors import RequestRefused
from kerneljudge.grading.local_record import blank_record
from kerneljudge.records import SubmissionRecord
from kerneljudge.rewards import Completion, KernelRewards, RewardShape, Unmeasured, text_of
from tests.api.conftest import PROBLEMS, LiveServer
from tests.kerneljudge.graded import answer, graded_service

PASSED = 0.3 + math.log(2.0)
"""What the default shape gives for a speedup of 2, which is what the scripted worker measures."""

_FAILING = [verdict for verdict in Verdict if verdict is not Verdict.PASSED]
_AMOUNTS = st.floats(min_value=0, max_value=10)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A service that grades."""
    with graded_service(tmp_path_factory.mktemp("rewards")) as live:
        yield live


def record(verdict: str | None = "passed", **known: Any) -> SubmissionRecord:
    return blank_record("relu", **{"status": "done", "verdict": verdict, "gradients": "match", **known})


def test_being_right_pays_and_being_fast_pays_more() -> None:
    shape = RewardShape(correct=0.5, log_speedup=2.0, cap=1.0, least=0.2)
    assert shape.reward(record(speedup=1.0)) == 0.5
    assert shape.reward(record(speedup=1.2)) == pytest.approx(0.5 + 2 * math.log(1.2))
    assert shape.reward(record(speedup=100.0)) == 1.5
    assert shape.reward(record(speedup=0.9)) == pytest.approx(0.5 + 2 * math.log(0.9))
    assert shape.reward(record(speedup=0.001)) == 0.2
    assert shape.reward(record(speedup=None)) == 0.5


@pytest.mark.parametrize("status", ["unsettled", "not_vetted"])
def test_what_passed_without_a_figure_has_no_reward_of_0_unless_that_is_asked_for(status: str) -> None:
    known = record(speedup=None, speedup_status=status)
    assert RewardShape().reward(known) is None
    assert RewardShape(unmeasured=0.2).reward(known) == 0.2
    with pytest.raises(Unmeasured, match=status):
        RewardShape(unmeasured="raise").reward(known)
    # The other track has its own status, and what did not pass needs no figure.
    assert RewardShape(track="training").reward(known) == 0.3
    assert RewardShape().reward(record("wrong_output", speedup_status=status)) == 0


def test_who_leaves_constant_weights_out_is_paid_for_being_right_alone() -> None:
    known = record(speedup=None, speedup_status="weights_fixed")
    assert RewardShape(unmeasured="raise").reward(known) == 0.3


def test_the_training_track_has_its_own_speedup() -> None:
    known = record(speedup=1.0, speedup_training=math.e)
    assert RewardShape(track="training").reward(known) == pytest.approx(1.3)
    assert RewardShape().reward(known) == 0.3


def test_missing_gradients_can_cost_what_was_earned() -> None:
    known = record(speedup=1.0, gradients="missing")
    assert RewardShape().reward(known) == 0.3
    assert RewardShape(missing_gradients=0.1).reward(known) == pytest.approx(0.2)
    assert RewardShape(missing_gradients=5).reward(known) == 0


def test_what_fails_costs_its_penalty() -> None:
    shape = RewardShape(penalties={"invalid_source": 0.5, "timeout": 0.25})
    assert shape.reward(record("invalid_source")) == -0.5
    assert shape.reward(record("timeout")) == -0.25
    assert shape.reward(record("wrong_output")) == 0
    assert RewardShape().reward(record("rejected")) == -1


def test_what_was_not_graded_is_no_verdict() -> None:
    shape = RewardShape(ungraded=-0.125)
    for status in ("failed", "cancelled", "queued"):
        assert shape.reward(record(None, status=status)) == -0.125


@given(
    verdict=st.sampled_from(_FAILING),
    speedup=st.none() | st.floats(min_value=1e-3, max_value=1e9),
    gradients=st.sampled_from(["match", "missing", "not_checked"]),
    correct=_AMOUNTS,
    log_speedup=_AMOUNTS,
    cap=_AMOUNTS,
    penalties=st.dictionaries(st.sampled_from(_FAILING), _AMOUNTS),
)
def test_nothing_that_did_not_pass_ever_earns(
    verdict: Verdict,
    speedup: float | None,
    gradients: str,
    correct: float,
    log_speedup: float,
    cap: float,
    penalties: dict[str, float],
) -> None:
    shape = RewardShape(correct=correct, log_speedup=log_speedup, cap=cap, least=0, penalties=penalties)
    failed = record(verdict, speedup=speedup, speedup_training=speedup, gradients=gradients)
    assert shape.reward(failed) <= 0 <= shape.reward(record(speedup=speedup, gradients=gradients))


@pytest.mark.parametrize(
    "values",
    [
        {"correct": -1.0, "least": -1.0},
        {"correct": 0.1, "least": 0.2},
        {"log_speedup": -1.0},
        {"cap": math.nan},
        {"missing_gradients": -0.1},
        {"track": "both"},
        {"penalties": {"rejected": -1.0}},
        {"penalties": {"rejected": math.nan}},
        {"penalties": {"passed": 1.0}},
        {"penalties": {"slow": 1.0}},
    ],
)
def test_a_shape_that_would_reward_failing_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must|there is no"):
        RewardShape(**values)


@pytest.mark.parametrize(
    ("completion", "text"),
    [
        ("x", "x"),
        ([{"role": "assistant", "content": "x"}], "x"),
        ([{"role": "assistant", "content": "a"}, {"role": "user", "content": "b"},
          {"role": "assistant", "content": "x"}, {"role": "tool", "content": "c"}], "x"),
        ([{"role": "assistant", "content": [{"type": "text", "text": "x"}, {"type": "image"},
                                            {"type": "text", "text": "y"}]}], "xy"),
        ([{"role": "assistant", "content": None}], ""),
        ([{"role": "user", "content": "b"}], ""),
        ([], ""),
    ],
)  # fmt: skip
def test_a_completion_is_a_text_or_a_conversation(completion: Completion, text: str) -> None:
    assert text_of(completion) == text


def test_rewards_are_in_the_order_of_the_completions(live: LiveServer) -> None:
    completions: list[Completion] = [
        answer("build: refuse"),
        [{"role": "assistant", "content": answer()}],
        "There is no code in this.",
        "",
        answer(),
    ]
    rewards = KernelRewards(live.url, RewardShape(penalties={"invalid_source": 0.5}), options={"device": "cpu"})
    assert asyncio.run(rewards(completions, ["relu"] * len(completions))) == [0, PASSED, -0.5, -0.5, PASSED]


def test_a_problem_may_be_the_source_of_a_reference(live: LiveServer) -> None:
    reference = (PROBLEMS / "relu" / "reference.py").read_text(encoding="utf-8")
    rewards = KernelRewards(live.url, options={"device": "cpu"})
    (graded, known) = asyncio.run(rewards.grade([answer(), answer()], [reference, "relu"]))
    assert graded.record is not None
    assert graded.passed
    assert graded.record["problem"].startswith("reference_")
    assert known.record is not None
    assert known.record["problem"] == "relu"
    with pytest.raises(RequestRefused, match="it does not define Model"):
        asyncio.run(rewards([answer()], ["import torch\n"]))


def test_256_are_awaited_at_once(live: LiveServer) -> None:
    rewards = KernelRewards(live.url, options={"device": "cpu"}, timeout_s=200)
    # As from a model that is still learning: most are no code, and the rest comes to whatever it can.
    steps = ["", "build: refuse", "evaluate: overrun", *["no code"] * 5]

    async def run() -> list[list[float]]:
        wanted = [
            rewards([answer(step, f"{number} of 256") if step != "no code" else f"{number} {at}"], ["relu"])
            for number in range(32)
            for at, step in enumerate(steps)
        ]
        assert len(wanted) == 256
        return await asyncio.gather(*wanted)

    assert asyncio.run(run()) == [[PASSED], *[[0]] * 7] * 32


def test_the_same_completion_is_graded_once_in_a_call(live: LiveServer) -> None:
    rewards = KernelRewards(live.url, options={"device": "cpu", "label": "same"})
    assert asyncio.run(rewards([answer("", "same")] * 8, ["relu"] * 8)) == [PASSED] * 8
    with httpx.Client(base_url=live.url, trust_env=False) as http:
        assert len(http.get("/api/v1/submissions", params={"label": "same"}).json()["items"]) == 1


def test_what_takes_too_long_is_cancelled_and_not_graded(live: LiveServer) -> None:
    shape = RewardShape(ungraded=-0.125)
    rewards = KernelRewards(live.url, shape, options={"device": "cpu", "label": "slow"}, timeout_s=0.3)
    assert asyncio.run(rewards([answer("evaluate: sleep 60")], ["relu"])) == [-0.125]
    with httpx.Client(base_url=live.url, trust_env=False) as http:
        (item,) = http.get("/api/v1/submissions", params={"label": "slow"}).json()["items"]
    assert item["status"] == "cancelled"


def test_a_service_that_is_away_is_not_the_completions_fault() -> None:
    def connect(url: str, **options: Any) -> AsyncClient:
        return AsyncClient(url, retries=0, **options)

    rewards = KernelRewards("http://127.0.0.1:9", RewardShape(ungraded=math.nan), connect=connect)
    (reward,) = asyncio.run(rewards([answer()], ["relu"]))
    assert math.isnan(reward)


def test_an_answer_that_is_too_large_is_no_source(live: LiveServer) -> None:
    rewards = KernelRewards(live.url, RewardShape(penalties={"invalid_source": 0.5}), options={"device": "cpu"})
    assert asyncio.run(rewards(["x" * 400_000, "x" * 3_000_000], ["relu", "relu"])) == [-0.5, -0.5]


def test_an_unknown_problem_is_refused(live: LiveServer) -> None:
    with pytest.raises(RequestRefused, match="there are"):
        asyncio.run(KernelRewards(live.url)([answer()], ["rleu"]))
    with pytest.raises(ValueError, match="zip"):
        asyncio.run(KernelRewards(live.url)([answer()], []))


def test_several_event_loops_may_use_it(live: LiveServer) -> None:
    rewards = KernelRewards(live.url, options={"device": "cpu"})
    for _ in range(2):
        assert asyncio.run(rewards([answer()], ["relu"])) == [PASSED]


def test_trl_calls_it_with_columns(live: LiveServer) -> None:
    reward = KernelRewards(live.url, options={"device": "cpu"}).for_trl()
    assert inspect.iscoroutinefunction(reward)
    assert getattr(reward, "__name__") == "kernel_reward"  # noqa: B009 - which the type of a callable does not say
    found = asyncio.run(
        reward(
            prompts=["p", "q"],
            completions=[[{"role": "assistant", "content": answer()}], [{"role": "assistant", "content": "no"}]],
            completion_ids=[[1], [2]],
            problem=["relu", "relu"],
            trainer_state=None,
        )
    )
    assert found == [PASSED, 0]
    with pytest.raises(KeyError, match="needs a column 'problem'"):
        asyncio.run(reward(prompts=["p"], completions=["c"]))


def test_verl_calls_it_for_one_solution(live: LiveServer) -> None:
    score = KernelRewards(live.url, options={"device": "cpu"}).for_verl()
    assert inspect.iscoroutinefunction(score)
    known = {"data_source": "kernels", "solution_str": answer()}
    passed = {"score": PASSED, "passed": 1.0, "speedup": 2.0}
    assert asyncio.run(score(**known, ground_truth="", extra_info={"problem": "relu"}, router=None)) == passed
    assert asyncio.run(score(**known, ground_truth="relu")) == passed
    failed = asyncio.run(score(data_source="k", solution_str="no", ground_truth="relu", extra_info={"num_turns": 1}))
    assert failed == {"score": 0.0, "passed": 0.0, "speedup": 0.0}


def test_verifiers_calls_it_and_finds_the_feedback(live: LiveServer) -> None:
    reward = KernelRewards(live.url, options={"device": "cpu"}).for_verifiers()
    assert inspect.iscoroutinefunction(reward)
    # A rubric passes what a function names, and nothing else.
    assert set(inspect.signature(reward).parameters) == {"completion", "info", "answer", "state"}
    state: dict[str, Any] = {}
    completion = [{"role": "assistant", "content": answer("build: refuse")}]
    assert asyncio.run(reward(completion=completion, info={"problem": "relu"}, answer="", state=state)) == 0
    assert state["feedback"].startswith("Verdict: compile error")
    assert asyncio.run(reward(completion=answer(), info={}, answer="relu", state=state)) == PASSED
