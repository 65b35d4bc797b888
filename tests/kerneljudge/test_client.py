"""The HTTP client against the real application."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import cast

import httpx
import pytest

from evaluator.evaluation import Verdict
from kerneljudge.client import Client
from kerneljudge.errors import NoAnswer, RequestRefused, ServiceUnreachable
from kerneljudge.grading.local_record import blank_record
from kerneljudge.records import (
    AttemptRecord,
    SeriesRecord,
    SubmissionRecord,
)
from tests.api.inmemory import AppTransport
from tests.api.seeds import SOURCE, Seeds, failed, passed
from tests.kerneljudge.conftest import KNOWN, PROBLEM_IDS, URL, Flaky, Pauses


def test_a_diagnosis_is_asked_for_and_read(service: Client, seeds: Seeds) -> None:
    seeds.diagnosing_worker()
    submission_id = seeds.faulted()
    assert service.request_diagnosis(submission_id)["tool"] == "memcheck"
    assert service.request_diagnosis(submission_id, "racecheck")["status"] == "pending"
    assert service.diagnosis(submission_id)["tool"] == "racecheck"
    seeds.diagnose(submission_id)
    made = service.diagnosis(submission_id, "memcheck")
    assert made["result"] is not None
    assert made["result"]["printed"] == "it ran\n"
    with pytest.raises(RequestRefused) as refused:
        service.request_diagnosis(submission_id, "counters")
    assert refused.value.status == 409


def test_a_record_that_no_service_made_has_every_field() -> None:
    assert set(blank_record("relu")) == set(SubmissionRecord.__annotations__)


def test_a_submission_is_handed_in_with_everything_that_was_given(service: Client) -> None:
    record = service.submit(
        "relu",
        code=SOURCE,
        device="cuda",
        size="smoke",
        precision="float16",
        require_gradients=False,
        label="l",
        author="a",
    )
    assert (record["device"], record["size"], record["precision"]) == ("cuda", "smoke", "float16")
    assert (record["require_gradients"], record["label"], record["author"]) == (False, "l", "a")
    assert service.get(str(record["id"]))["id"] == record["id"]
    assert service.source(str(record["id"])) == SOURCE
    assert service.submissions(label="l", tier="full")["items"][0]["id"] == record["id"]
    assert service.submissions(label="l", tier="check")["items"] == []
    assert service.cancel(str(record["id"]))["status"] == "cancelled"


def test_a_model_answer_is_handed_in_as_one(service: Client) -> None:
    record = service.submit("relu", response=f"```python\n{SOURCE}```")
    assert service.source(str(record["id"])).strip() == SOURCE.strip()


def test_what_the_service_knows_is_read(service: Client, seeds: Seeds) -> None:
    submission_id = seeds.passed()
    seeds.worker("w", "build", "build", None)
    assert [record["id"] for record in service.problems()] == PROBLEM_IDS
    assert "class Model" in service.problem("relu")["reference"]
    board = service.leaderboard("relu", device="cpu", size="smoke", precision="float32")
    assert [entry["submission"] for entry in board["entries"]] == [submission_id]
    assert service.workers()[0]["id"] == "w"
    assert service.log(submission_id) == "compiled\nit ran\n"


def test_samples_attempts_and_a_retry(service: Client, seeds: Seeds) -> None:
    submission_id = seeds.passed()
    series = service.samples(submission_id)["inference"]
    assert set(series) == set(SeriesRecord.__annotations__)
    assert series["baseline_outer_ms"] == [2.1]
    build, evaluate = service.attempts(submission_id)
    assert set(build) == set(AttemptRecord.__annotations__)
    assert (build["outcome"], evaluate["outcome"]) == ("built", "done")
    with pytest.raises(RequestRefused, match="only failed ones"):
        service.retry(submission_id)
    failed_id = seeds.submit()
    seeds.fault(seeds.claim_build(failed_id), "the builder died", final=True)
    assert service.retry(failed_id)["status"] == "queued"


def test_the_leaderboard_of_one_device(service: Client, seeds: Seeds) -> None:
    seeds.passed()
    assert len(service.leaderboard("relu", device_name="a processor")["entries"]) == 1
    assert service.leaderboard("relu", device_name="another")["entries"] == []


def test_waiting_returns_the_verdict(service: Client, seeds: Seeds) -> None:
    submission_id = seeds.submit()
    timer = threading.Timer(0.3, seeds.evaluate, (submission_id, passed(seeds.problems["relu"])))
    timer.start()
    assert service.wait(submission_id, timeout_s=60)["verdict"] == "passed"
    timer.join()


def test_waiting_has_an_end(service: Client, seeds: Seeds) -> None:
    begin = time.monotonic()
    with pytest.raises(TimeoutError, match=r"still queued after 0\.3 s"):
        service.wait(seeds.submit(), timeout_s=0.3)
    assert time.monotonic() - begin < 5


def test_events_end_with_the_last_record(service: Client, seeds: Seeds) -> None:
    events = list(service.events(seeds.passed()))
    assert [event.name for event in events] == ["done"]
    assert events[0].record["verdict"] == "passed"


def test_a_stream_that_breaks_is_asked_for_again(transport: AppTransport, seeds: Seeds, pauses: Pauses) -> None:
    flaky = Flaky(
        transport,
        httpx.ReadError("gone"),
        httpx.Response(200, text=": ping\n\nevent: progr"),
        httpx.Response(503, json={}),
    )
    with Client(URL, transport=flaky, sleep=pauses) as service:
        assert [event.name for event in service.events(seeds.passed())] == ["done"]
    assert len(pauses) == 3


def test_a_stream_that_keeps_breaking_is_given_up(transport: AppTransport, pauses: Pauses) -> None:
    flaky = Flaky(transport, *(httpx.ConnectError("gone") for _ in range(9)))
    with (
        Client(URL, transport=flaky, sleep=pauses, retries=3) as service,
        pytest.raises(ServiceUnreachable, match="keeps breaking"),
    ):
        list(service.events("x"))
    assert len(flaky.requests) == 4


def test_events_hold_whatever_a_candidate_says(service: Client, seeds: Seeds) -> None:
    submission_id = seeds.submit()
    message = "".join(map(chr, (0x41, 0x0B, 0x0C, 0x1C, 0x85, 0x2028, 0x2029, 0x42)))
    seeds.evaluate(submission_id, failed(seeds.problems["relu"], Verdict.RUNTIME_ERROR, message))
    (event,) = service.events(submission_id)
    assert event.record["message"] == message


def test_events_of_nothing_are_refused(service: Client) -> None:
    with pytest.raises(RequestRefused, match="no submission"):
        list(service.events("none"))


def test_a_refusal_names_the_fields(service: Client) -> None:
    with pytest.raises(RequestRefused, match="full, medium, smoke") as refused:
        service.submit("relu", code=SOURCE, size="huge")
    assert refused.value.status == 422
    assert set(refused.value.fields) == {"size"}
    with pytest.raises(RequestRefused, match=KNOWN):
        service.submit("rleu", code=SOURCE)


@pytest.mark.parametrize("identity", ["a/b", "../problems", "%2e%2e", "a?b=c", "ü", "\ud800"])
def test_an_id_stays_one_part_of_the_path(service: Client, identity: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        service.get(identity)
    assert refused.value.status == 404


def test_a_busy_service_is_asked_again_when_it_says(transport: AppTransport, pauses: Pauses) -> None:
    flaky = Flaky(
        transport,
        httpx.Response(429, headers={"Retry-After": "7"}),
        httpx.Response(503, headers={"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}),
        httpx.Response(503),
    )
    with Client(URL, transport=flaky, sleep=pauses) as service:
        assert service.submit("relu", code=SOURCE)["status"] == "queued"
    assert pauses[0] == 7
    assert len(pauses) == 3


@pytest.mark.parametrize(
    ("limits", "pause_s"),
    [
        ('"minute";r=0;t=9', 9),
        ('"second"; t=2; r=0, "minute";r=0;t=11, "day";r=7;t=29', 11),
        ('"minute";r=3;t=9', 0.25),
        ('"minute";r=0', 0.25),
        ('"minute";r=0;t=-1', 0.25),
        ("nothing of the kind; =", 0.25),
    ],
)
def test_a_gateway_may_say_in_its_limits_when_it_can_be_asked_again(
    transport: AppTransport, pauses: Pauses, limits: str, pause_s: float
) -> None:
    flaky = Flaky(transport, httpx.Response(429, headers={"RateLimit": limits}))
    with Client(URL, transport=flaky, sleep=pauses) as service:
        assert service.submit("relu", code=SOURCE)["status"] == "queued"
    assert pauses == [pause_s]


def test_a_submission_that_was_sent_twice_is_one(transport: AppTransport, pauses: Pauses) -> None:
    class AnswerLost(Flaky):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            answer = self.inner.handle_request(request)
            return answer if self.failures == [] else super().handle_request(request)

    flaky = AnswerLost(transport, httpx.ReadError("the answer was lost"))
    with Client(URL, transport=flaky, sleep=pauses) as service:
        record = service.submit("relu", code=SOURCE)
        assert [item["id"] for item in service.submissions()["items"]] == [record["id"]]


def test_a_service_that_stays_away_is_given_up(transport: AppTransport, pauses: Pauses) -> None:
    for failure in (httpx.ConnectError("refused"), httpx.Response(503)):
        flaky = Flaky(transport, *[failure] * 9)
        with Client(URL, transport=flaky, sleep=pauses, retries=2) as service, pytest.raises(ServiceUnreachable):
            service.problems()
        assert len(flaky.requests) == 3


def test_a_fault_of_the_service_is_not_tried_again(transport: AppTransport, pauses: Pauses) -> None:
    flaky = Flaky(transport, httpx.Response(500, text="oops"))
    with Client(URL, transport=flaky, sleep=pauses) as service, pytest.raises(ServiceUnreachable, match="500"):
        service.problems()
    assert pauses == []


@pytest.mark.parametrize("text", ["<html>hello</html>", "[]", ""])
def test_another_service_is_recognised(transport: AppTransport, text: str) -> None:
    with (
        Client(URL, transport=Flaky(transport, httpx.Response(200, text=text))) as service,
        pytest.raises(NoAnswer, match="is it a kerneljudge service"),
    ):
        service.problems()


def test_nothing_listening_is_unreachable(pauses: Pauses) -> None:
    with Client("http://127.0.0.1:9", sleep=pauses, retries=1) as service, pytest.raises(ServiceUnreachable):
        service.problems()


def test_a_batch_is_one_however_often_it_is_sent(service: Client) -> None:
    lines = json.dumps({"problem": "relu", "device": "cpu", "code": "class ModelNew: ..."}).encode()
    first, second = (service.submit_batch(lines, idempotency_key="k") for _ in range(2))
    assert first["id"] == second["id"]
    cancelled = service.cancel_batch(first["id"])
    assert (cancelled["status"], service.batch(first["id"])["finished"] is not None) == ("cancelled", True)
    (result,) = service.batch_results(first["id"])
    assert (result["cursor"], result["submission"]["status"]) == (1, "cancelled")
    assert service.batch_results(first["id"], cursor=1) == []
    assert list(service.stream_batch_results(first["id"])) == [result]
    assert service.is_up()


class Torn(httpx.BaseTransport):
    """Breaks off, each time it is asked for results, after some more bytes than the last time."""

    def __init__(self, inner: httpx.BaseTransport) -> None:
        self._inner = inner
        self.asked: list[str] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = self._inner.handle_request(request)
        if not request.url.path.endswith("/results"):
            return answer
        self.asked.append(request.url.params["cursor"])
        whole = b"".join(cast(httpx.SyncByteStream, answer.stream))
        return httpx.Response(answer.status_code, stream=TornStream(whole[: 1500 * len(self.asked)], whole))


class TornStream(httpx.SyncByteStream):
    def __init__(self, part: bytes, whole: bytes) -> None:
        self._part, self._torn = part, part != whole

    def __iter__(self) -> Iterator[bytes]:
        yield self._part
        if self._torn:
            raise httpx.ReadError("torn")


def test_results_that_break_off_go_on_where_they_did(transport: AppTransport, pauses: Pauses, seeds: Seeds) -> None:
    torn = Torn(transport)
    with Client(URL, transport=torn, sleep=pauses, retries=3) as service:
        new = [{"problem": "relu", "device": "cpu", "code": f"class ModelNew: ...  # {number}"} for number in range(3)]
        lines = [json.dumps(each).encode() + b"\n" for each in new]
        batch = service.submit_batch(lines, idempotency_key="k")
        for item in service.submissions()["items"]:
            assert item["id"] is not None
            message = f"a\N{LINE SEPARATOR}b of {item['id']}"
            seeds.evaluate(item["id"], failed(seeds.problems["relu"], Verdict.WRONG_OUTPUT, message))
        found = list(service.stream_batch_results(batch["id"]))
        assert [result["cursor"] for result in found] == [1, 2, 3]
        assert all("\N{LINE SEPARATOR}" in result["submission"]["message"] for result in found)
        assert len(torn.asked) > 2
        assert torn.asked == sorted(torn.asked)
        again = service.batch_results(batch["id"], 2)
        assert again == found[2:]
