"""Rewards against a real service: many at a time, and the trainers' ways of calling."""

from __future__ import annotations

import asyncio
import inspect
import math
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from kerneljudge.async_client import AsyncClient
from kerneljudge.errors import RequestRefused
from kerneljudge.requests import SubmissionOptions
from kerneljudge.rewards import Completion, KernelRewards, NoReward, RewardShape, Ungraded, text_of
from tests.api.conftest import PROBLEMS, LiveServer
from tests.kerneljudge.graded import PASSED, answer, graded_service
from tests.services import free_port


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A service that grades."""
    with graded_service(tmp_path_factory.mktemp("rewards")) as live:
        yield live


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


def test_a_group_is_one_request(live: LiveServer) -> None:
    sent: list[httpx.Request] = []

    class Noting(httpx.AsyncHTTPTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            sent.append(request)
            return await super().handle_async_request(request)

    def connect(url: str, **options: Any) -> AsyncClient:
        return AsyncClient(url, transport=Noting(), **options)

    options: SubmissionOptions = {"device": "cpu", "visibility": "public", "metadata": {"step": 7}}
    rewards = KernelRewards(live.url, options=options, connect=connect)
    steps = ["", "build: refuse", "", *["no code"] * 5]
    completions = [answer(step, f"group {at}") if step != "no code" else f"{at}" for at, step in enumerate(steps)]
    graded = asyncio.run(rewards.grade(completions, ["relu"] * len(completions)))
    assert [each.reward for each in graded] == [PASSED, 0, PASSED, *[0] * 5]
    assert "compile error" in graded[1].feedback
    for each in graded:
        assert each.record is not None
        assert (each.record["visibility"], each.record["metadata"]) == ("public", {"step": 7})
    assert [request.url.path for request in sent if request.method == "POST"] == ["/api/v1/batches"]


def test_a_group_that_takes_too_long_keeps_the_verdicts_that_came(live: LiveServer) -> None:
    rewards = KernelRewards(live.url, options={"device": "cpu", "label": "late"}, timeout_s=4)
    # One worker does both, in this order.
    completions = [answer("build: refuse", "late"), answer("evaluate: sleep 60", "late"), answer("", "later")]
    begin = time.monotonic()
    first, slow, waiting = asyncio.run(rewards.grade(completions, ["relu"] * 3))
    assert time.monotonic() - begin < 5
    assert first.reward == 0
    for each in (slow, waiting):
        assert (each.reward, str(each.doubt)) == (None, "no verdict within 4 s")
    with httpx.Client(base_url=live.url, trust_env=False) as http:
        items = http.get("/api/v1/submissions", params={"label": "late"}).json()["items"]
        assert "cancelled" in {item["status"] for item in items}
        for item in items:
            http.delete(f"/api/v1/submissions/{item['id']}")


def test_what_takes_too_long_is_cancelled_and_not_graded(live: LiveServer) -> None:
    shape = RewardShape(ungraded=-0.125)
    rewards = KernelRewards(live.url, shape, options={"device": "cpu", "label": "slow"}, timeout_s=0.3)
    assert asyncio.run(rewards([answer("evaluate: sleep 60")], ["relu"])) == [-0.125]
    with httpx.Client(base_url=live.url, trust_env=False) as http:
        (item,) = http.get("/api/v1/submissions", params={"label": "slow"}).json()["items"]
    assert item["status"] == "cancelled"


def test_a_service_that_is_away_gives_no_reward_or_raises() -> None:
    def connect(url: str, **options: Any) -> AsyncClient:
        return AsyncClient(url, **{**options, "retries": 0})

    def rewards(shape: RewardShape) -> KernelRewards:
        return KernelRewards(f"http://127.0.0.1:{free_port()}", shape, connect=connect)

    for number in (1, 3):
        completions = [answer("", str(index)) for index in range(number)]
        problems = ["relu"] * number
        assert asyncio.run(rewards(RewardShape())(completions, problems)) == [None] * number
        assert asyncio.run(rewards(RewardShape(ungraded=0.5))(completions, problems)) == [0.5] * number
        with pytest.raises(Ungraded, match="cannot reach"):
            asyncio.run(rewards(RewardShape(ungraded="raise"))(completions, problems))
        for graded in asyncio.run(rewards(RewardShape(ungraded="raise")).grade(completions, problems)):
            assert graded.reward is None
            assert isinstance(graded.doubt, Ungraded)


@pytest.mark.parametrize("number", [1, 2], ids=["one", "a group"])
def test_a_call_that_is_cancelled_leaves_nothing_waiting(live: LiveServer, number: int) -> None:
    options: SubmissionOptions = {"device": "cpu", "label": f"left {number}"}
    completions = [answer("build: sleep 30", f"left {number} {index}") for index in range(number)]

    def left() -> list[dict[str, Any]]:
        with httpx.Client(base_url=live.url, trust_env=False) as http:
            items: list[dict[str, Any]] = http.get("/api/v1/submissions", params={"label": f"left {number}"}).json()[
                "items"
            ]
        return items

    async def interrupted() -> None:
        call = asyncio.ensure_future(KernelRewards(live.url, options=options)(completions, ["relu"] * number))
        while len(await asyncio.to_thread(left)) < number:
            await asyncio.sleep(0.05)
        # The answer to the request comes after what it has stored.
        await asyncio.sleep(0.5)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(interrupted())
    assert "cancelled" in {item["status"] for item in left()}
    with httpx.Client(base_url=live.url, trust_env=False) as http:
        for item in left():
            http.delete(f"/api/v1/submissions/{item['id']}")


def test_an_answer_that_is_too_large_is_no_source(live: LiveServer) -> None:
    rewards = KernelRewards(live.url, RewardShape(penalties={"invalid_source": 0.5}), options={"device": "cpu"})
    assert asyncio.run(rewards(["x" * 400_000, "x" * 3_000_000], ["relu", "relu"])) == [-0.5, -0.5]


def test_an_unknown_problem_is_refused(live: LiveServer) -> None:
    with pytest.raises(RequestRefused, match="there are"):
        asyncio.run(KernelRewards(live.url)([answer()], ["rleu"]))
    # The refusal of one line is that of the call, as an unknown problem is a mistake in the data.
    with pytest.raises(RequestRefused, match="there are"):
        asyncio.run(KernelRewards(live.url)([answer(), answer()], ["relu", "rleu"]))
    # It is raised at once, and ends the others.
    options: SubmissionOptions = {"device": "cpu", "label": "mistaken"}
    begin = time.monotonic()
    with pytest.raises(RequestRefused, match="there are"):
        asyncio.run(
            KernelRewards(live.url, options=options)(
                [answer("build: sleep 30", f"mistaken {number}") for number in range(3)], ["relu", "relu", "rleu"]
            )
        )
    assert time.monotonic() - begin < 10
    with httpx.Client(base_url=live.url, trust_env=False) as http:
        items = http.get("/api/v1/submissions", params={"label": "mistaken"}).json()["items"]
        assert "cancelled" in {item["status"] for item in items}
        for item in items:
            http.delete(f"/api/v1/submissions/{item['id']}")
    with pytest.raises(ValueError, match="1 completions and 0 problems"):
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
    score = KernelRewards(live.url, options={"device": "cpu"}, timeout_s=0.3).for_verl()
    with pytest.raises(NoReward, match="no verdict within"):
        asyncio.run(score(data_source="k", solution_str=answer("evaluate: sleep 60", "verl"), ground_truth="relu"))
    shape = RewardShape(ungraded=-1.0)
    score = KernelRewards(live.url, shape, options={"device": "cpu"}, timeout_s=0.3).for_verl()
    slow = asyncio.run(score(data_source="k", solution_str=answer("evaluate: sleep 60", "verl2"), ground_truth="relu"))
    # What is not known is no speedup of 0.
    assert (slow["score"], slow["passed"]) == (-1.0, 0.0)
    assert math.isnan(slow["speedup"])
