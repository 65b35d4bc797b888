"""Handing in, looking up, listing and cancelling."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import httpx
import pytest
from pydantic import TypeAdapter
from sqlalchemy import select

from api.services.catalogue import Catalogue
from evaluator.evaluation import Verdict
from evaluator.flags import Flag, FlagKind
from evaluator.problems.problem import Problem
from evaluator.roofline import PeakRates, Work, share_of_roofline
from kerneljudge.records import SubmissionRecord
from kerneljudge.terms.rules import Rules
from storage.grading.claims import Claims
from storage.models import StoredEvaluation
from tests.api.conftest import KNOWN, Post, assert_problem, fields
from tests.api.seeds import SOURCE, Seeds, failed, passed

CONTRACT = {
    "id", "status", "verdict", "gradients", "problem", "problem_version", "device", "size", "precision", "speedup",
    "speedup_interval", "speedup_training", "speedup_compiled", "latency_ms", "roofline_share", "errors", "message",
    "hints", "flags", "queue_position", "attempts", "timeline", "environment", "links",
}  # fmt: skip


def test_a_submission_is_accepted_and_can_be_read_back(http: httpx.Client, post: Post) -> None:
    answer = post(label="mine", author="me", require_gradients=True, limits={"total_s": 90.5, "call_s": 5})
    assert answer.status_code == 202
    record = answer.json()
    assert set(record) >= CONTRACT
    assert record["status"] == "queued"
    assert record["queue_position"] == 1
    assert (record["label"], record["author"], record["require_gradients"]) == ("mine", "me", True)
    assert record["limits"] == {"call_s": 5.0, "total_s": 90.5}
    assert record["tier"] == "full"
    assert answer.headers["location"] == record["links"]["self"]
    again = http.get(record["links"]["self"])
    assert again.status_code == 200
    assert again.json() == record


@pytest.mark.parametrize(("tier", "note"), [("check", "Checked alone"), ("quick", "Graded quickly"), ("full", None)])
def test_the_tier_is_told_wherever_the_submission_is(
    http: httpx.Client, seeds: Seeds, tier: str, note: str | None
) -> None:
    submission_id = seeds.passed(tier=tier)
    assert http.get(f"/api/v1/submissions/{submission_id}").json()["tier"] == tier
    page = http.get(f"/submissions/{submission_id}").text
    notes = [each for each in ("Checked alone", "Graded quickly") if each in page]
    assert notes == ([note] if note else [])
    board = http.get("/api/v1/leaderboard", params={"problem": "relu", "device": "cpu"}).json()
    assert len(board["entries"]) == (tier == "full")


def test_lists_can_be_of_one_tier(http: httpx.Client, seeds: Seeds) -> None:
    ids = {tier: seeds.passed(tier=tier) for tier in ("check", "quick", "full")}
    for tier, submission_id in ids.items():
        items = http.get("/api/v1/submissions", params={"tier": tier, "verdict": "passed"}).json()["items"]
        assert [each["id"] for each in items] == [submission_id]
        page = http.get("/submissions", params={"tier": tier}).text
        assert [each for each in ids.values() if f'href="/submissions/{each}"' in page] == [submission_id]
    assert len(http.get("/api/v1/submissions").json()["items"]) == 3
    every = http.get("/submissions", params={"tier": ""}).text
    assert all(f'href="/submissions/{each}"' in every for each in ids.values())
    assert fields(assert_problem(http.get("/api/v1/submissions", params={"tier": "deep"}), 422)) == {"tier"}


def test_the_rules_of_a_request_are_told_and_their_breaks_shown(http: httpx.Client, seeds: Seeds) -> None:
    rules = Rules(languages=("triton",), forbidden_operators=("matmul", "softmax"))
    broken = [{"rule": "languages", "line": 4, "message": "no kernel of its own", "file": "candidate.py"}]
    details = {"rules": {**rules.to_dict(), "no_lower_precision": True}, "broken_rules": broken}
    evaluation = failed(seeds.problems["relu"], Verdict.REJECTED, "the source breaks a rule", details=details)
    submission_id = seeds.evaluate(seeds.submit(rules=rules), evaluation)
    record = http.get(f"/api/v1/submissions/{submission_id}").json()
    assert record["rules"] == rules.to_dict()
    assert record["details"] == details
    assert "languages, line 4: no kernel of its own" in record["feedback"]
    page = http.get(f"/submissions/{submission_id}").text
    assert '<a href="#L4">candidate.py, line 4</a>: <bdi>no kernel of its own</bdi>' in page
    assert "kernels in triton" in page
    assert "--rules forbidden_operators=matmul+softmax,languages=triton" in page


def test_rules_of_a_problem_are_shown_and_only_added_to(
    http: httpx.Client, post: Post, problems: dict[str, Problem], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert http.get("/api/v1/problems/relu").json()["rules"] == {}
    assert "no rules; flags are advice" in http.get("/problems/relu").text
    record = post(rules={"no_lower_precision": True, "languages": ["cuda", "cpp"]}).json()
    assert record["rules"] == {"languages": ["cpp", "cuda"], "no_lower_precision": True}
    assert post().json()["rules"] == {}
    strict = replace(problems["relu"], rules=Rules(languages=("triton",)))
    monkeypatch.setattr(Catalogue, "problem", lambda *_arguments: strict)
    refused = assert_problem(post(rules={"languages": ["cuda"]}), 422)
    assert fields(refused) == {"rules"}
    assert "cannot loosen" in str(refused)
    assert "<dt>Source</dt><dd>kernels in triton</dd>" in http.get("/problems/relu").text


def test_flags_are_served_and_change_no_verdict(http: httpx.Client, seeds: Seeds) -> None:
    flags = (Flag(FlagKind.LIBRARY_ONLY, 3, "no kernel"), Flag(FlagKind.UNUSED_KERNEL, None, "never launched"))
    record = http.get(f"/api/v1/submissions/{seeds.passed(evaluation={'flags': flags})}").json()
    assert (record["status"], record["verdict"]) == ("done", "passed")
    assert record["flags"] == [
        {"kind": "library_only", "line": 3, "message": "no kernel"},
        {"kind": "unused_kernel", "line": None, "message": "never launched"},
    ]


def test_a_roofline_is_served_and_absent_where_there_is_none(http: httpx.Client, seeds: Seeds) -> None:
    roofline = share_of_roofline(Work(10**9, 10**9), PeakRates(1e12, {"float32": 1e13}), "float32", latency_ms=4.0)
    with_one = seeds.passed(evaluation={"roofline": {"inference": roofline}, "roofline_share": roofline.share})
    record = http.get(f"/api/v1/submissions/{with_one}").json()
    assert record["roofline_share"] == 0.25
    assert record["roofline"]["inference"] == asdict(roofline)
    page = http.get(f"/submissions/{with_one}").text
    assert "1.00 ms by memory (953.7 MiB, 1e+09 operations): 25 % of it reached" in page
    record = http.get(f"/api/v1/submissions/{seeds.passed()}").json()
    assert (record["roofline_share"], record["roofline"]) == (None, {})


def test_what_was_graded_before_there_were_flags_has_none(http: httpx.Client, seeds: Seeds) -> None:
    submission_id = seeds.passed()
    with seeds.sessions.begin() as session:
        stored = session.scalars(select(StoredEvaluation)).one()
        stored.record = {name: value for name, value in stored.record.items() if name != "flags"}
    assert http.get(f"/api/v1/submissions/{submission_id}").json()["flags"] == []


def test_without_a_cuda_worker_the_default_is_the_cpu_at_its_small_size(post: Post) -> None:
    record = post().json()
    assert (record["device"], record["size"], record["precision"]) == ("cpu", "smoke", "float32")


def test_with_a_cuda_worker_alive_the_default_is_cuda_at_full_size(post: Post, seeds: Seeds) -> None:
    seeds.worker("w", "evaluate", "evaluate.cuda", "cuda:0")
    record = post().json()
    assert (record["device"], record["size"]) == ("cuda", "full")


def test_what_is_asked_for_is_not_overridden_by_defaults(post: Post) -> None:
    record = post(device="cuda", size="smoke", precision="bfloat16", baseline="eager").json()
    assert (record["device"], record["size"], record["precision"]) == ("cuda", "smoke", "bfloat16")


def test_a_model_answer_is_graded_by_its_last_block(http: httpx.Client, post: Post) -> None:
    answer = f"<think>hm</think> So:\n```python\n{SOURCE}```\nDone."
    record = post(code=None, response=answer).json()
    assert record["status"] == "queued"
    source = http.get(record["links"]["source"])
    assert source.headers["content-type"] == "text/plain; charset=utf-8"
    assert source.text.strip() == SOURCE.strip()


def test_source_that_is_no_candidate_is_a_verdict_at_once_and_no_error(post: Post) -> None:
    record = post(code="x = (").json()
    assert (record["status"], record["verdict"]) == ("done", "invalid_source")
    assert record["message"]


@pytest.mark.parametrize("source", ["class ModelNew:\x00 ...", "class ModelNew: '\x00'", "\x00"])
def test_nul_characters_are_a_verdict_and_no_fault(post: Post, source: str) -> None:
    answer = post(code=source, label="a\x00b", author="\x00")
    assert answer.status_code == 202
    assert answer.json()["verdict"] == "invalid_source"


@pytest.mark.parametrize("field", ["code", "response", "label", "author", "problem", "size"])
def test_lone_surrogates_are_no_fault(http: httpx.Client, field: str) -> None:
    given = {} if field == "response" else {"code": SOURCE}
    content = json.dumps({"problem": "relu", **given, field: "\ud800"})
    answer = http.post("/api/v1/submissions", content=content, headers={"Content-Type": "application/json"})
    if field in ("code", "response"):
        assert answer.json()["verdict"] == "invalid_source"
    else:
        assert fields(assert_problem(answer, 422)) == {field}


@pytest.mark.parametrize("body", [{}, {"code": None}, {"response": "```\n```"}])
def test_exactly_one_of_code_and_response(post: Post, body: dict[str, object]) -> None:
    changes = {"code": SOURCE if "response" in body else None, **body}
    assert fields(assert_problem(post(**changes), 422)) == {"code", "response"}


def test_an_unknown_problem_is_answered_with_the_known_ones(post: Post) -> None:
    detail = assert_problem(post(problem="rleu"), 404)["detail"]
    assert detail == f"no problem 'rleu'; {KNOWN}"


def test_an_unknown_size_is_answered_with_the_known_ones(post: Post) -> None:
    problem = assert_problem(post(size="enormous"), 422)
    assert fields(problem) == {"size"}
    assert "full, medium, smoke" in str(problem["detail"])


def test_a_baseline_that_the_problem_does_not_allow_is_answered_with_those_that_it_does(post: Post) -> None:
    problem = assert_problem(post(baseline="tf32"), 422)
    assert fields(problem) == {"baseline"}
    assert "it has eager, ieee, compile, compile-max-autotune" in str(problem["detail"])
    accepted = post(baseline="compile")
    assert accepted.status_code == 202
    assert accepted.json()["baseline"] == "compile"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("device", "tpu"),
        ("device", "cuda:0"),
        ("precision", "float8"),
        ("baseline", "slow"),
        ("require_gradients", "yes"),
        ("require_gradients", 1),
        ("limits", {"nap_s": 5}),
        ("tier", "deep"),
        ("rules", {"forbidden_operators": ["softmaxx"]}),
        ("rules", {"languages": []}),
        ("rules", ["matmul"]),
        ("limits", {"call_s": 0}),
        ("limits", "call_s=5"),
        ("label", "x" * 201),
        ("author", 7),
        ("code", ["x"]),
        ("unheard_of", 1),
    ],
)
def test_a_bad_value_is_refused_and_its_field_named(post: Post, field: str, value: object) -> None:
    assert fields(assert_problem(post(**{field: value}), 422)) == {field}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"\xff\xfe",
        b'{"problem": "relu", "code": ' + b"9" * 5000 + b"}",
        b"[" * 100_000,
        b'{"problem": NaN, "code": Infinity}',
    ],
)
def test_a_body_that_is_no_request_is_refused(http: httpx.Client, content: bytes) -> None:
    answer = http.post("/api/v1/submissions", content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)
    assert_problem(answer, answer.status_code)


def test_a_form_is_not_json(http: httpx.Client) -> None:
    assert_problem(http.post("/api/v1/submissions", data={"problem": "relu"}), 422)


@pytest.mark.parametrize("wait", ["-1", "301", "nan", "inf", "soon", "9" * 400])
def test_a_bad_wait_is_refused(post: Post, wait: str) -> None:
    assert fields(assert_problem(post({"wait": wait}), 422)) == {"wait"}


def test_an_idempotency_key_makes_one_submission_of_two_requests(post: Post) -> None:
    key = {"Idempotency-Key": "k-1"}
    first, second = post(headers=key), post(headers=key)
    assert first.json()["id"] == second.json()["id"]
    assert "idempotency-replayed" not in first.headers
    assert second.headers["idempotency-replayed"] == "true"


def test_an_idempotency_key_is_not_used_for_another_content(post: Post) -> None:
    key = {"Idempotency-Key": "k-1"}
    post(headers=key)
    assert_problem(post(headers=key, label="other"), 409)


def test_an_idempotency_key_still_leads_to_the_first_one_when_the_default_device_has_changed(
    post: Post, seeds: Seeds
) -> None:
    key = {"Idempotency-Key": "k-1"}
    first = post(headers=key).json()
    seeds.worker("w", "evaluate", "evaluate.cuda", "cuda:0")
    assert post(headers=key).json()["id"] == first["id"]


@pytest.mark.parametrize("key", ["", "x" * 201])
def test_an_idempotency_key_has_a_bounded_length(post: Post, key: str) -> None:
    assert fields(assert_problem(post(headers={"Idempotency-Key": key}), 422)) == {"idempotency-key"}


def test_submissions_are_listed_newest_first_in_pages(http: httpx.Client, seeds: Seeds) -> None:
    ids = [seeds.submit() for _ in range(5)]
    seen: list[str] = []
    cursor = None
    while True:
        params = {"limit": 2} | ({"cursor": cursor} if cursor else {})
        page = http.get("/api/v1/submissions", params=params).json()
        seen += [record["id"] for record in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert sorted(seen) == sorted(ids)
    assert seen == sorted(seen, reverse=True)


def test_the_list_is_filtered_by_every_condition(http: httpx.Client, seeds: Seeds) -> None:
    wanted = seeds.passed(author="ann", label="fast")
    seeds.submit(author="bob", label="slow", problem="linear_relu_divide")
    for name, value in {
        "problem": "relu", "device": "cpu", "status": "done", "verdict": "passed", "author": "ann", "label": "fast",
    }.items():  # fmt: skip
        items = http.get("/api/v1/submissions", params={name: value}).json()["items"]
        expected = 2 if name == "device" else 1
        assert len(items) == expected, name
        assert wanted in [record["id"] for record in items]
    assert http.get("/api/v1/submissions", params={"author": "\x00"}).json()["items"] == []


@pytest.mark.parametrize(
    ("name", "value"),
    [("limit", "0"), ("limit", "201"), ("limit", "9" * 50), ("status", "lost"), ("verdict", "good"), ("device", "x")],
)
def test_a_bad_condition_is_refused_and_named(http: httpx.Client, name: str, value: str) -> None:
    assert fields(assert_problem(http.get("/api/v1/submissions", params={name: value}), 422)) == {name}


@pytest.mark.parametrize("suffix", ["", "/source", "/log", "/samples", "/attempts", "/events"])
@pytest.mark.parametrize("identity", ["sub_none", "%00", "%ff", "a%20b"])
def test_what_does_not_exist_is_not_found(http: httpx.Client, suffix: str, identity: str) -> None:
    assert_problem(http.get(f"/api/v1/submissions/{identity}{suffix}"), 404)


def test_a_graded_submission_shows_its_figures(http: httpx.Client, seeds: Seeds) -> None:
    record = http.get(f"/api/v1/submissions/{seeds.passed()}").json()
    TypeAdapter(SubmissionRecord).validate_python(record)
    assert (record["status"], record["verdict"], record["gradients"]) == ("done", "passed", "match")
    assert record["speedup"] == 2.0
    assert record["speedup_interval"] == {"low": 1.9, "high": 2.1, "level": 0.95}
    assert record["latency_ms"]["candidate"] == 1.0
    assert record["environment"] == {"device_name": "a processor"}
    assert record["stage_s"] == {"building": 0.25}
    assert all(record["timeline"].values())
    assert "samples" not in record


def test_the_log_holds_what_was_printed(http: httpx.Client, seeds: Seeds) -> None:
    assert http.get(f"/api/v1/submissions/{seeds.passed()}/log").text == "compiled\nit ran\n"


def test_a_failed_candidate_is_shown_with_its_message_and_no_speedup(http: httpx.Client, seeds: Seeds) -> None:
    evaluation = failed(seeds.problems["relu"], Verdict.WRONG_OUTPUT, "element (3, 5) is 1, not 0", hints=("look",))
    record = http.get(f"/api/v1/submissions/{seeds.evaluate(seeds.submit(), evaluation)}").json()
    assert (record["verdict"], record["speedup"]) == ("wrong_output", None)
    assert record["message"] == "element (3, 5) is 1, not 0"
    assert record["hints"] == ["look"]


def test_feedback_comes_with_a_verdict_from_what_is_stored(http: httpx.Client, seeds: Seeds) -> None:
    message = "main.cpp:3: no such thing"
    source = 'load_inline(cpp_sources="""\nint f();\nint g() { return h(); }\n""")\nclass ModelNew: ...\n'
    source = f"from torch.utils.cpp_extension import load_inline\n{source}"
    submission_id = seeds.submit(source=source)
    assert http.get(f"/api/v1/submissions/{submission_id}").json()["feedback"] is None
    seeds.evaluate(submission_id, failed(seeds.problems["relu"], Verdict.COMPILE_ERROR, message))
    feedback = http.get(f"/api/v1/submissions/{submission_id}").json()["feedback"]
    assert feedback.splitlines() == [
        "Verdict: compile error while compiling the extension (relu, cpu, size smoke, float32).",
        message,
        "That is line 3 of your source: int f();",
    ]
    assert http.get("/api/v1/submissions").json()["items"][0]["feedback"] is None
    # It is made when it is asked for, so that the oldest evaluations have it as well.
    with seeds.sessions() as session:
        (stored,) = session.scalars(select(StoredEvaluation))
        assert "feedback" not in stored.record


def test_what_is_no_candidate_gets_feedback_at_once(post: Post) -> None:
    feedback = post(code="class Model: ...\n").json()["feedback"]
    assert "the source does not define ModelNew" in feedback
    assert "Hint: the source defines Model but not ModelNew" in feedback


def test_progress_is_shown_while_it_is_worked_on(http: httpx.Client, seeds: Seeds) -> None:
    submission_id = seeds.submit()
    seeds.show(seeds.claim_build(submission_id), "building", "kernel.cpp", 0.5)
    record = http.get(f"/api/v1/submissions/{submission_id}").json()
    assert record["status"] == "building"
    assert record["progress"] == {"stage": "building", "message": "kernel.cpp", "share": 0.5}
    assert record["queue_position"] is None


def test_a_waiting_submission_is_cancelled(http: httpx.Client, seeds: Seeds) -> None:
    submission_id = seeds.submit()
    answer = http.delete(f"/api/v1/submissions/{submission_id}")
    assert (answer.status_code, answer.json()["status"]) == (200, "cancelled")
    assert http.get(f"/api/v1/submissions/{submission_id}").json()["status"] == "cancelled"


def test_a_finished_submission_stays_as_it_is(http: httpx.Client, seeds: Seeds) -> None:
    assert http.delete(f"/api/v1/submissions/{seeds.passed()}").json()["status"] == "done"


def test_what_does_not_exist_cannot_be_cancelled(http: httpx.Client) -> None:
    assert_problem(http.delete("/api/v1/submissions/none"), 404)


def test_the_raw_samples_are_served_by_track(http: httpx.Client, seeds: Seeds) -> None:
    record = http.get(f"/api/v1/submissions/{seeds.passed()}").json()
    answer = http.get(record["links"]["samples"])
    assert answer.status_code == 200
    assert answer.json() == {
        "submission": record["id"],
        "tracks": {
            "inference": {
                "candidate_device_ms": [1.0],
                "baseline_device_ms": [2.0],
                "candidate_outer_ms": [1.1],
                "baseline_outer_ms": [2.1],
                "candidate_forward_ms": [],
                "baseline_forward_ms": [],
                "order": ["ab"],
            }
        },
    }


def test_samples_that_are_not_there_yet_are_a_conflict(http: httpx.Client, seeds: Seeds) -> None:
    submission_id = seeds.submit()
    assert "is queued" in str(assert_problem(http.get(f"/api/v1/submissions/{submission_id}/samples"), 409)["detail"])
    seeds.claim_build(submission_id)
    assert "is building" in str(assert_problem(http.get(f"/api/v1/submissions/{submission_id}/samples"), 409)["detail"])


def test_samples_of_what_was_not_timed_are_not_found(http: httpx.Client, seeds: Seeds, post: Post) -> None:
    evaluation = failed(seeds.problems["relu"], Verdict.WRONG_OUTPUT, "element (3, 5) is 1, not 0", samples={})
    links = http.get(f"/api/v1/submissions/{seeds.evaluate(seeds.submit(), evaluation)}").json()["links"]
    assert "element (3, 5)" in str(assert_problem(http.get(links["samples"]), 404)["detail"])
    assert_problem(http.get(post(code="x = (").json()["links"]["samples"]), 404)
    cancelled = http.delete(f"/api/v1/submissions/{seeds.submit()}").json()
    assert "cancelled" in str(assert_problem(http.get(cancelled["links"]["samples"]), 404)["detail"])


def test_every_attempt_is_on_record(http: httpx.Client, seeds: Seeds) -> None:
    submission_id = seeds.submit()
    seeds.fault(seeds.claim_build(submission_id), "the builder died")
    seeds.let_time_pass(submission_id)
    seeds.evaluate(submission_id, passed(seeds.problems["relu"]))
    record = http.get(f"/api/v1/submissions/{submission_id}").json()
    answer = http.get(record["links"]["attempts"]).json()
    assert answer["submission"] == submission_id
    seen = [
        tuple(item[name] for name in ("number", "stage", "worker", "outcome", "detail")) for item in answer["items"]
    ]
    assert seen == [
        (1, "build", "builder", "fault", "the builder died"),
        (2, "build", "builder", "built", ""),
        (2, "evaluate", "worker", "done", "passed"),
    ]
    assert all(item["started"] <= item["ended"] for item in answer["items"])


def test_what_nobody_has_taken_up_has_no_attempts(http: httpx.Client, seeds: Seeds) -> None:
    assert http.get(f"/api/v1/submissions/{seeds.submit()}/attempts").json()["items"] == []


def test_what_failed_is_graded_again_on_request(http: httpx.Client, seeds: Seeds) -> None:
    submission_id = seeds.submit()
    seeds.fault(seeds.claim_build(submission_id), "the builder died", final=True)
    assert http.get(f"/api/v1/submissions/{submission_id}").json()["status"] == "failed"
    answer = http.post(f"/api/v1/submissions/{submission_id}/retry")
    assert (answer.status_code, answer.json()["status"], answer.json()["queue_position"]) == (202, "queued", 1)
    seeds.evaluate(submission_id, passed(seeds.problems["relu"]))
    assert http.get(f"/api/v1/submissions/{submission_id}").json()["verdict"] == "passed"
    assert len(http.get(f"/api/v1/submissions/{submission_id}/attempts").json()["items"]) == 3


def test_only_what_failed_is_graded_again(http: httpx.Client, seeds: Seeds) -> None:
    for submission_id in (seeds.submit(), seeds.passed()):
        detail = assert_problem(http.post(f"/api/v1/submissions/{submission_id}/retry"), 409)["detail"]
        assert "only failed ones" in str(detail)
    assert_problem(http.post("/api/v1/submissions/none/retry"), 404)


def test_what_waits_for_nobody_says_so(http: httpx.Client, seeds: Seeds) -> None:
    submission_id = seeds.submit(device="cuda")

    def message() -> str:
        record = http.get(f"/api/v1/submissions/{submission_id}").json()
        (listed,) = http.get("/api/v1/submissions").json()["items"]
        assert listed["message"] == record["message"]
        return str(record["message"])

    assert message() == "waiting for a worker that compiles and a worker for device cuda: none is running"
    seeds.worker("b", "build", "build", None)
    seeds.worker("c", "evaluate", "evaluate.cpu", "cpu")
    assert message() == "waiting for a worker for device cuda: none is running"
    build = seeds.claim_build(submission_id)
    assert message() == ""
    with seeds.sessions.begin() as session:
        assert Claims(session).record_built(build, seconds=0.1, log="")
    assert message() == "waiting for a worker for device cuda: none is running"
    seeds.worker("g", "evaluate", "evaluate.cuda", "cuda:0")
    assert message() == ""
