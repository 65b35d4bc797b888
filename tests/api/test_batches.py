"""Batches over HTTP: coming in, being followed, ending."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy import text, update

from api.app import create_app
from api.services.container import Services
from evaluator.evaluation import Verdict
from evaluator.problems.problem import Problem
from runtime.settings import Settings
from storage.batches.batches import Batches
from storage.models import Batch
from tests.api.conftest import PROBLEMS, LiveServer, assert_problem, fields
from tests.api.inmemory import running
from tests.api.seeds import SOURCE, Seeds, failed
from tests.processes import wait_until

NDJSON = {"Content-Type": "application/x-ndjson"}

Hand = Callable[..., httpx.Response]


def line(number: int = 0, **changes: Any) -> dict[str, Any]:
    """A submission whose source nobody else has."""
    return {"problem": "relu", "device": "cpu", "code": f"{SOURCE}# {number}\n", **changes}


def ndjson(*lines: object) -> bytes:
    return b"".join(each if isinstance(each, bytes) else json.dumps(each).encode() + b"\n" for each in lines)


@pytest.fixture
def hand(http: httpx.Client) -> Hand:
    """Hands in lines as NDJSON."""

    def hand(*lines: object, **headers: str) -> httpx.Response:
        return http.post("/api/v1/batches", content=ndjson(*lines), headers=NDJSON | headers)

    return hand


def results(http: httpx.Client, batch_id: str, cursor: int = 0) -> list[dict[str, Any]]:
    answer = http.get(f"/api/v1/batches/{batch_id}/results", params={"cursor": cursor})
    assert answer.headers["content-type"] == "application/x-ndjson"
    return [json.loads(each) for each in answer.text.split("\n") if each]


def submissions(http: httpx.Client) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = http.get("/api/v1/submissions", params={"limit": 200}).json()["items"]
    return sorted(found, key=lambda record: record["id"])


def test_a_batch_goes_from_lines_to_results_and_a_summary(settings: Settings, problems: dict[str, Problem]) -> None:
    app = create_app(settings)
    with running(app) as transport, httpx.Client(transport=transport, base_url="http://testserver") as http:
        seeds = Seeds(app.state.services.sessions, problems)
        header = {"batch": {"name": "first", "defaults": {"problem": "relu", "device": "cpu", "author": "me"}}}
        given = [header, {"code": SOURCE, "label": "a"}, {"code": "x = 1", "label": "b"}, b"{\n", {"code": SOURCE}]
        answer = http.post("/api/v1/batches", content=ndjson(*given), headers=NDJSON)
        assert answer.status_code == 202, answer.text
        record = answer.json()
        assert answer.headers["location"] == record["links"]["self"] == f"/api/v1/batches/{record['id']}"
        assert (record["name"], record["status"], record["items"], record["shared"]) == ("first", "running", 3, 1)
        assert (record["errors_total"], [error["line"] for error in record["errors"]]) == (1, [4])
        assert (record["statuses"]["queued"], record["verdicts"]) == (2, {"invalid_source": 1})
        (early,) = results(http, record["id"])
        assert (early["cursor"], early["line"], early["label"]) == (1, 3, "b")

        (waiting,) = [each for each in submissions(http) if each["status"] == "queued"]
        assert (waiting["author"], waiting["label"], waiting["size"]) == ("me", "a", "smoke")
        seeds.evaluate(waiting["id"], _passed(problems))
        later = results(http, record["id"], cursor=early["cursor"])
        assert [(each["cursor"], each["line"], each["label"]) for each in later] == [(2, 2, "a"), (3, 5, None)]
        assert {each["submission"]["id"] for each in later} == {waiting["id"]}

        done = http.get(record["links"]["self"]).json()
        assert (done["status"], done["finished_items"], done["eta_s"]) == ("done", 3, 0.0)
        assert done["summary"]["overall"] | {"problems": 1, "candidates": 3, "correct": 2} == done["summary"]["overall"]
        assert done["summary"]["by_level"]["1"]["solved"] == 1
        over_two = http.get(record["links"]["summary"], params={"problem": ["relu", "softmax"]}).json()
        assert (over_two["overall"]["fast_p"]["1"], over_two["missing"]) == (0.5, ["softmax"])
        assert_problem(http.get(record["links"]["summary"], params={"problem": "any\ntext"}), 422)
        one_of_two = {"low": pytest.approx(0.0945, abs=1e-4), "high": pytest.approx(0.9055, abs=1e-4), "level": 0.95}
        assert over_two["overall"]["fast_p_interval"]["1"] == one_of_two
        # Two of three candidates of one of two problems are right: 1/3 and 0, which vary less than a share.
        (chance,) = [each for each in over_two["pass_at_k"] if (each["k"], each["p"]) == (1, 1.0)]
        assert chance["value"] == pytest.approx(1 / 3)
        assert 0 <= chance["interval"]["low"] < 1 / 3 < chance["interval"]["high"] < 1
        assert "event: done" in http.get(record["links"]["events"]).text
        (listed,) = http.get("/api/v1/batches").json()["items"]
        assert (listed["id"], listed["summary"]) == (record["id"], None)


def test_a_batch_in_one_piece_is_the_same(http: httpx.Client) -> None:
    body = {"name": "n", "defaults": {"problem": "relu"}, "submissions": [{"code": SOURCE}, 3, {"code": 4}]}
    record = http.post("/api/v1/batches", json=body).json()
    assert (record["name"], record["items"], record["errors_total"]) == ("n", 1, 2)
    assert record["errors"][0] == {"line": 2, "message": "a submission is an object"}
    assert record["errors"][1]["line"] == 3
    assert "code" in record["errors"][1]["message"]


def test_a_batch_of_nothing_is_done_at_once(http: httpx.Client, hand: Hand) -> None:
    for answer in (hand(), hand({"batch": {}}), http.post("/api/v1/batches", json={"submissions": []})):
        assert (answer.status_code, answer.json()["status"], answer.json()["items"]) == (202, "done", 0)


HOSTILE = [
    (b"not json\n", "not JSON"),
    (b'{"a": \n', "not JSON"),
    (b"\xff\xfe\n", "not JSON"),
    (b"[" * 100_000 + b"\n", "not JSON"),
    (b"1" * 5000 + b"\n", "not JSON"),
    (b'"text"\n', "a submission is an object"),
    (b"null\n", "a submission is an object"),
    (ndjson({"code": SOURCE}), "problem"),
    (ndjson(line(problem="rleu")), "no problem 'rleu'"),
    (ndjson(line(size="huge")), "full, medium, smoke"),
    (ndjson(line(device="tpu")), "device"),
    (ndjson(line(response="x")), "exactly one of code and response"),
    (ndjson(line(code=None)), "exactly one of code and response"),
    (ndjson(line(baseline="tf32")), "baseline"),
    (ndjson(line(surprise=1)), "surprise"),
    (ndjson({"batch": {"name": "too late"}}), "batch"),
    (b'{"problem": "relu", "code": "' + b"x" * 2_000_000 + b'"}\n', "too long"),
]


@pytest.mark.parametrize(("hostile", "words"), HOSTILE, ids=range(len(HOSTILE)))
def test_a_line_that_is_no_submission_is_named_and_sinks_no_other(hand: Hand, hostile: bytes, words: str) -> None:
    record = hand(line(1), b"\n", hostile, line(2)).json()
    assert (record["items"], record["errors_total"]) == (2, 1), record
    (error,) = record["errors"]
    assert error["line"] == 3
    assert words in error["message"]
    assert len(error["message"]) < 1000


def test_of_many_errors_the_first_are_shown_and_all_are_counted(hand: Hand) -> None:
    record = hand(*[b"no\n"] * 1500, line()).json()
    assert (record["errors_total"], len(record["errors"]), record["items"]) == (1500, 100, 1)


@pytest.mark.parametrize(
    ("header", "field"),
    [
        ({"name": 3}, "name"),
        ({"defaults": {"code": "x"}}, "defaults.code"),
        ({"webhook": {"url": "ftp://x/", "secret": "12345678"}}, "webhook.url"),
        ({"webhook": {"url": "file:///etc/passwd", "secret": "12345678"}}, "webhook.url"),
        ({"webhook": {"url": "http://a/", "secret": "short"}}, "webhook.secret"),
        ({"webhook": {"url": "http://a/", "secret": "whsec_no base64"}}, "webhook.secret"),
    ],
)
def test_a_header_out_of_order_refuses_the_batch(
    http: httpx.Client, hand: Hand, header: dict[str, Any], field: str
) -> None:
    assert field in fields(assert_problem(hand({"batch": header}, line()), 422))
    assert field in fields(assert_problem(http.post("/api/v1/batches", json={**header, "submissions": []}), 422))
    assert http.get("/api/v1/batches").json()["items"] == []


def test_other_bodies_are_refused(http: httpx.Client) -> None:
    for kind in ("text/plain", "application/x-ndjson-not", ""):
        answer = http.post("/api/v1/batches", content=b"{}", headers={"Content-Type": kind})
        assert "application/x-ndjson" in str(assert_problem(answer, 415)["detail"])
    assert_problem(http.post("/api/v1/batches", content=b"{", headers={"Content-Type": "application/json"}), 422)


def test_the_same_is_graded_once_within_and_across_batches(http: httpx.Client, hand: Hand) -> None:
    first = hand(line(1), line(1, label="again", author="you"), line(2)).json()
    second = hand(line(2), line(1), line(3), line(1, size="medium"), line(1, require_gradients=True)).json()
    single = http.post("/api/v1/submissions", json=line(1)).json()
    assert (first["items"], first["shared"], second["items"], second["shared"]) == (3, 1, 5, 2)
    assert len(submissions(http)) == 2 + 3 + 1
    assert single["queue_position"] == 1


def test_lines_under_different_rules_are_graded_apart(http: httpx.Client, hand: Hand) -> None:
    rules = {"forbidden_operators": ["softmax", "matmul"]}
    again = {"forbidden_operators": ["matmul", "softmax"], "no_lower_precision": False}
    record = hand(line(1), line(1, rules=rules), line(1, rules=again), line(1, rules={"languages": ["cuda"]})).json()
    assert (record["items"], record["shared"]) == (4, 1)
    assert [each["rules"] for each in submissions(http)].count({"forbidden_operators": ["matmul", "softmax"]}) == 1


def test_the_rules_of_a_batch_are_those_of_its_lines(http: httpx.Client) -> None:
    body = {
        "defaults": {"problem": "relu", "rules": {"no_lower_precision": True}},
        "submissions": [{"code": SOURCE}, {"code": SOURCE, "rules": {"languages": ["cpp"]}}],
    }
    assert http.post("/api/v1/batches", json=body).status_code == 202
    found = [each["rules"] for each in submissions(http)]
    assert {"no_lower_precision": True} in found
    assert {"languages": ["cpp"]} in found


def test_what_failed_or_was_cancelled_is_graded_again(http: httpx.Client, hand: Hand, seeds: Seeds) -> None:
    hand(line(1), line(2))
    one, two = [record["id"] for record in submissions(http)]
    seeds.fault(seeds.claim_build(one), "the judge died", final=True)
    http.delete(f"/api/v1/submissions/{two}")
    assert http.get("/api/v1/batches").json()["items"][0]["status"] == "done"
    again = hand(line(1), line(2)).json()
    assert (again["shared"], again["statuses"]["queued"]) == (0, 2)
    # Retried, what failed is waited for again.
    first = http.get("/api/v1/batches").json()["items"][1]
    assert http.post(f"/api/v1/submissions/{one}/retry").status_code == 202
    reopened = http.get(first["links"]["self"]).json()
    assert (reopened["status"], reopened["finished_items"]) == ("running", 1)
    seeds.evaluate(one, _passed(seeds.problems))
    assert results(http, first["id"], cursor=2)[0]["submission"]["verdict"] == "passed"


def test_cancelling_leaves_what_has_begun_and_what_others_wait_for(
    http: httpx.Client, hand: Hand, seeds: Seeds
) -> None:
    batch = hand(line(1), line(2), line(3)).json()
    other = hand(line(2)).json()
    begun, needed, mine = [record["id"] for record in submissions(http)]
    claim = seeds.claim_build(begun)
    record = http.delete(batch["links"]["self"]).json()
    assert (record["status"], record["finished"], record["finished_items"]) == ("cancelled", None, 2)
    assert http.get(f"/api/v1/submissions/{mine}").json()["status"] == "cancelled"
    assert http.get(f"/api/v1/submissions/{needed}").json()["status"] == "queued"
    assert http.get(other["links"]["self"]).json()["status"] == "running"
    assert [(each["line"], each["cancelled"]) for each in results(http, batch["id"])] == [(3, False), (2, True)]
    seeds.fault(claim, "the judge died", final=True)
    over = http.get(batch["links"]["self"]).json()
    assert (over["status"], over["finished"] is not None) == ("cancelled", True)
    assert over["statuses"] | {"cancelled": 2, "failed": 1} == over["statuses"]
    assert http.delete(batch["links"]["self"]).json() == over


def test_a_batch_that_breaks_off_is_cancelled(live: LiveServer) -> None:
    head = "POST /api/v1/batches HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\nIdempotency-Key: k\r\n"
    head += "Content-Type: application/x-ndjson\r\n\r\n"
    with httpx.Client(base_url=live.url, timeout=30) as http:

        def newest() -> dict[str, Any]:
            items: list[dict[str, Any]] = http.get("/api/v1/batches").json()["items"]
            return items[0] if items else {}

        with socket.create_connection((http.base_url.host, http.base_url.port or 0)) as connection:
            connection.sendall(head.encode() + ndjson(*map(line, range(450))))
            wait_until(lambda: newest() and newest()["items"] == 400, "the first lines of a batch")

        wait_until(lambda: newest()["status"] == "cancelled", "a cancelled batch")
        record = newest()
        assert (record["items"], record["statuses"]["cancelled"]) == (400, 400)
        assert record["message"] == "it did not come in whole: the body broke off"
        # The same key may be used again.
        again = http.post("/api/v1/batches", content=ndjson(line()), headers=NDJSON | {"Idempotency-Key": "k"})
        assert (again.status_code, again.json()["status"]) == (202, "running")


def test_a_batch_that_the_database_breaks_off_shows_no_statement_and_no_source(
    http: httpx.Client, hand: Hand, services: Services, caplog: pytest.LogCaptureFixture
) -> None:
    with services.sessions.begin() as session:
        broken = "CREATE TRIGGER broken BEFORE INSERT ON sources BEGIN SELECT RAISE(ABORT, 'broken'); END"
        session.execute(text(broken))
    answer = hand(line(1), line(2))
    assert_problem(answer, 500)
    (record,) = http.get("/api/v1/batches").json()["items"]
    assert (record["status"], record["message"]) == ("cancelled", "it did not come in whole: this service had a fault")
    assert "broken" in caplog.text
    assert SOURCE.splitlines()[0] not in answer.text + caplog.text


def test_a_batch_sent_twice_with_one_key_is_one(http: httpx.Client, hand: Hand) -> None:
    key = {"Idempotency-Key": "mine"}
    first = hand(line(1), line(2), **key)
    second = hand(line(1), line(2), **key)
    assert (first.status_code, second.status_code) == (202, 202)
    assert first.json()["id"] == second.json()["id"]
    assert ("idempotency-replayed" in first.headers, second.headers["idempotency-replayed"]) == (False, "true")
    assert_problem(hand(line(1), line(3), **key), 409)
    assert len(http.get("/api/v1/batches").json()["items"]) == 1


def test_a_batch_whose_server_was_killed_is_taken_in_when_it_is_sent_again(
    http: httpx.Client, hand: Hand, seeds: Seeds
) -> None:
    with seeds.sessions.begin() as session:
        dead = Batches(session).create(idempotency_key="mine").id
    early = hand(line(1), **{"Idempotency-Key": "mine"})
    assert_problem(early, 503)
    assert 10 < int(early.headers["retry-after"]) <= 20
    with seeds.sessions.begin() as session:
        session.execute(update(Batch).values(heard_at=datetime.now(UTC) - timedelta(seconds=30)))
    record = hand(line(1), **{"Idempotency-Key": "mine"}).json()
    assert (record["status"], record["items"]) == ("running", 1)
    assert http.get(f"/api/v1/batches/{dead}").json()["status"] == "cancelled"


def test_results_come_with_what_to_tell_the_model(http: httpx.Client, hand: Hand, seeds: Seeds) -> None:
    record = hand(line(1), line(1), {"problem": "relu", "device": "cpu", "code": "x = ("}).json()
    (waiting,) = (each["id"] for each in submissions(http) if each["status"] == "queued")
    message = "line\N{LINE SEPARATOR}separator\N{NEXT LINE}"
    seeds.evaluate(waiting, failed(seeds.problems["relu"], Verdict.WRONG_OUTPUT, message))
    found = {each["line"]: each["submission"] for each in results(http, record["id"])}
    assert {each: found[each]["feedback"] for each in found} == {
        1: http.get(f"/api/v1/submissions/{waiting}").json()["feedback"],
        2: found[1]["feedback"],
        3: http.get(f"/api/v1/submissions/{found[3]['id']}").json()["feedback"],
    }
    assert found[3]["feedback"].startswith("Verdict: invalid source")
    assert found[1]["message"] == message


def small(tmp_path: Any, **changes: Any) -> Settings:
    return Settings(data_dir=tmp_path / "data", problems_dir=PROBLEMS, port=0, **changes)


def test_a_full_queue_is_429_and_nothing_of_it_is_graded(tmp_path: Any) -> None:
    app = create_app(small(tmp_path, max_queued=300))
    with running(app) as transport, httpx.Client(transport=transport, base_url="http://testserver") as http:

        def post(*numbers: int) -> httpx.Response:
            content = ndjson(*(line(number) for number in numbers))
            return http.post("/api/v1/batches", content=content, headers=NDJSON)

        assert post(*range(250)).status_code == 202
        refused = post(*range(1000, 1060))
        assert_problem(refused, 429)
        assert refused.headers["retry-after"].isdecimal()
        # What is there already takes no more room, and a single submission has room of its own.
        assert post(*range(250)).status_code == 202
        assert http.post("/api/v1/submissions", json=line(5000)).status_code == 202
        assert post(*range(2000, 2050)).status_code == 202
        assert_problem(post(3000), 429)
        assert_problem(post(*range(301)), 413)


def test_a_single_submission_is_429_only_where_single_ones_fill_the_queue(tmp_path: Any) -> None:
    app = create_app(small(tmp_path, max_queued=2))
    with running(app) as transport, httpx.Client(transport=transport, base_url="http://testserver") as http:
        key = {"Idempotency-Key": "k"}
        first = http.post("/api/v1/submissions", json=line(1), headers=key)
        assert [http.post("/api/v1/submissions", json=line(n)).status_code for n in (2, 3)] == [202, 429]
        assert http.post("/api/v1/submissions", json=line(1), headers=key).json()["id"] == first.json()["id"]
        assert http.post("/api/v1/submissions", json=line(code="x = 1")).json()["verdict"] == "invalid_source"


def test_events_tell_of_progress_until_the_end(live: LiveServer, live_seeds: Seeds) -> None:
    with httpx.Client(base_url=live.url, timeout=30) as http:
        batch = http.post("/api/v1/batches", content=ndjson(line(1), line(2)), headers=NDJSON).json()
        names: list[str] = []
        finished: list[int] = []
        with http.stream("GET", batch["links"]["events"]) as stream:
            for text in stream.iter_lines():
                field, _, value = text.partition(": ")
                if field == "event":
                    names.append(value)
                elif field == "data":
                    record = json.loads(value)
                    finished.append(record["finished_items"])
                    if record["finished_items"] < 2:
                        waiting = [each for each in submissions(http) if each["status"] == "queued"]
                        live_seeds.evaluate(waiting[0]["id"], _passed(live_seeds.problems))
        assert (names, finished) == (["progress", "progress", "done"], [0, 1, 2])
        assert record["summary"]["overall"]["correct"] == 2


def test_who_follows_a_batch_is_let_go_when_the_server_stops(live: LiveServer) -> None:
    with httpx.Client(base_url=live.url, timeout=30) as http:
        batch = http.post("/api/v1/batches", content=ndjson(line()), headers=NDJSON).json()
        begun, ended = threading.Event(), threading.Event()

        def follow() -> None:
            with http.stream("GET", batch["links"]["events"]) as stream:
                for _ in stream.iter_lines():
                    begun.set()
            ended.set()

        thread = threading.Thread(target=follow)
        thread.start()
        assert begun.wait(20)
        live.stop()
        assert ended.wait(10)
        thread.join()


def test_a_webhook_is_shown_without_its_secret(http: httpx.Client) -> None:
    webhook = {"url": "https://example.org/hook?x=1", "secret": "very secret"}
    answer = http.post("/api/v1/batches", json={"submissions": [line()], "webhook": webhook})
    assert answer.json()["webhook"] == {"url": webhook["url"], "attempts": 0, "delivered": None, "message": ""}
    assert "very secret" not in answer.text


def test_an_unknown_batch_is_404(http: httpx.Client) -> None:
    for path in ("", "/results", "/events", "/summary"):
        assert_problem(http.get(f"/api/v1/batches/bat_none{path}"), 404)
    assert_problem(http.delete("/api/v1/batches/bat_none"), 404)


def test_batches_are_listed_page_by_page(http: httpx.Client, hand: Hand) -> None:
    ids = [hand({"batch": {"name": str(number)}}).json()["id"] for number in range(3)]
    page = http.get("/api/v1/batches", params={"limit": 2}).json()
    rest = http.get("/api/v1/batches", params={"cursor": page["next_cursor"]}).json()
    assert [each["id"] for each in [*page["items"], *rest["items"]]] == ids[::-1]
    assert rest["next_cursor"] is None


def _passed(problems: dict[str, Problem]) -> Any:
    return failed(problems["relu"], Verdict.PASSED, "ok", speedup=2.0)
