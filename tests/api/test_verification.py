"""Where submissions can run, in what condition workers are, and which records hold: the API and the pages."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from evaluator.evaluation import Interval
from storage.grading.claims import Claims
from storage.grading.verification import checks_of
from storage.models import WorkerState
from storage.queue import workers
from storage.queue.eligibility import DeviceCapabilities
from storage.queue.workers import Condition
from tests.api.conftest import Post, assert_problem, fields
from tests.api.outline import page
from tests.api.seeds import LEASE_S, Seeds, passed

HERE = DeviceCapabilities("here/cpu", "a processor")
ASKED = {"device_name": "NVIDIA H200", "min_memory_gib": 100.5, "min_compute_capability": "9.0"}


def record_made(seeds: Seeds, speedup: float = 2.0, **environment: str) -> str:
    """A submission that made a record, which is to be verified."""
    submission_id = seeds.submit(author="ada", label="quick")
    grade(seeds, submission_id, speedup, **environment)
    return submission_id


def grade(seeds: Seeds, submission_id: str, speedup: float, **environment: str) -> None:
    build = seeds.claim_build(submission_id)
    figures: dict[str, Any] = {"speedup": speedup, "speedup_interval": Interval(speedup - 0.1, speedup + 0.1)}
    found = passed(seeds.problems["relu"], **figures, environment={"device_name": "a processor", **environment})
    with seeds.sessions.begin() as session:
        claims = Claims(session)
        assert claims.record_built(build, seconds=0.25, log="")
        claim = claims.claim(submission_id, "evaluate", "w", LEASE_S, HERE)
        assert claim is not None
        assert claims.record_evaluation(claim, found, verify=True)


def check_of(seeds: Seeds, submission_id: str) -> str:
    with seeds.sessions() as session:
        return checks_of(session, submission_id)[-1].id


def test_a_submission_may_ask_for_a_device_and_waits_for_one_aloud(http: httpx.Client, post: Post) -> None:
    record = post(device="cuda", requirements=ASKED).json()
    assert record["requirements"] == ASKED
    assert record["waiting_for"].startswith("waiting for a worker that compiles and a worker for device cuda of the na")
    assert record["waiting_for"] in record["message"]
    plain = post(device="cpu").json()
    assert plain["requirements"] is None
    assert http.get(f"/api/v1/submissions/{record['id']}").json()["requirements"] == ASKED


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"min_memory_gib": -1}, "requirements.min_memory_gib"),
        ({"min_compute_capability": "nine"}, "requirements.min_compute_capability"),
        ({"min_compute_capability": "9.0"}, "requirements.min_compute_capability"),
        ({"colour": "green"}, "requirements.colour"),
    ],
)
def test_what_no_device_could_be_asked_for_is_refused(post: Post, asked: dict[str, object], field: str) -> None:
    answer = post(device="cpu", requirements=asked)
    assert fields(assert_problem(answer, 422)) == {field}


def test_a_batch_may_ask_for_a_device_for_all_of_it(http: httpx.Client, seeds: Seeds) -> None:
    header = {"batch": {"defaults": {"problem": "relu", "device": "cuda", "requirements": {"device_name": "A"}}}}
    own = {"code": "class ModelNew: ...\n", "requirements": {"device_name": "B"}}
    lines = [json.dumps(line) for line in (header, {"code": own["code"]}, own)]
    headers = {"Content-Type": "application/x-ndjson"}
    assert http.post("/api/v1/batches", content="\n".join(lines), headers=headers).status_code == 202
    # Other requirements, another evaluation.
    listed = http.get("/api/v1/submissions").json()["items"]
    assert sorted(item["requirements"]["device_name"] for item in listed) == ["A", "B"]


def test_a_worker_that_takes_nothing_says_why(http: httpx.Client, seeds: Seeds) -> None:
    seeds.worker("b", "build", "build", None)
    with seeds.sessions.begin() as session:
        workers.register(
            session,
            "g",
            kind="evaluate",
            queues=["evaluate.cuda"],
            device="cuda:0",
            capabilities={"device_name": "NVIDIA H200"},
            condition=Condition(WorkerState.UNHEALTHY, "3 uncorrected ECC errors", ("Xid: no events",)),
        )
    ready, unhealthy = http.get("/api/v1/workers").json()["items"]
    assert (ready["state"], ready["reason"], ready["unchecked"]) == ("ready", "", [])
    assert (unhealthy["state"], unhealthy["reason"]) == ("unhealthy", "3 uncorrected ECC errors")
    assert unhealthy["unchecked"] == ["Xid: no events"]
    shown = page(http, "/workers")
    assert "takes nothing: device not fit" in shown
    assert "3 uncorrected ECC errors" in shown
    assert "not checked, <bdi>Xid: no events</bdi>" in shown
    submission_id = seeds.submit(device="cuda")
    record = http.get(f"/api/v1/submissions/{submission_id}").json()
    assert record["waiting_for"] == ("waiting for a worker for device cuda: g takes nothing (3 uncorrected ECC errors)")


def test_a_record_shows_how_far_its_verification_is(http: httpx.Client, seeds: Seeds) -> None:
    submission_id = record_made(seeds)
    path = f"/api/v1/submissions/{submission_id}"
    pending = http.get(path).json()["verification"]
    assert (pending["status"], pending["finished"], len(pending["checks"])) == ("pending", None, 1)
    assert "To be verified" not in page(http, f"/submissions/{submission_id}")
    assert "to be verified" in page(http, "/problems/relu")
    check = check_of(seeds, submission_id)
    grade(seeds, check, 1.95)
    verified = http.get(path).json()["verification"]
    assert verified["status"] == "verified"
    (shown,) = verified["checks"]
    assert (shown["submission"], shown["verdict"], shown["speedup"], shown["device"]) == (
        check,
        "passed",
        1.95,
        "here/cpu",
    )
    (entry,) = http.get("/api/v1/leaderboard", params={"problem": "relu", "device": "cpu"}).json()["entries"]
    assert (entry["submission"], entry["verification"]) == (submission_id, "verified")
    text = http.get("/api/v1/leaderboard", params={"problem": "relu", "device": "cpu", "format": "csv"}).text
    assert text.splitlines()[1].endswith(",verified")
    assert "✓ verified" in page(http, "/problems/relu")
    own = page(http, f"/submissions/{submission_id}")
    assert "an evaluation again, later and with other inputs, has confirmed it" in own
    assert f'href="/submissions/{check}"' in own
    # The evaluation again has a page, which says what it is, and is on no list.
    assert http.get(f"/api/v1/submissions/{check}").json()["verifies"] == submission_id
    assert f'the record of <a href="/submissions/{submission_id}">' in page(http, f"/submissions/{check}")
    assert [item["id"] for item in http.get("/api/v1/submissions").json()["items"]] == [submission_id]
    attempts = http.get(f"{path}/attempts").json()["items"]
    assert [attempt["device"] for attempt in attempts] == [None, "here/cpu"]


def test_a_record_that_does_not_hold_leaves_the_board_and_says_so(http: httpx.Client, seeds: Seeds) -> None:
    submission_id = record_made(seeds, 9.0)
    for _ in range(2):
        grade(seeds, check_of(seeds, submission_id), 1.0)
    record = http.get(f"/api/v1/submissions/{submission_id}").json()
    assert (record["verdict"], record["speedup"]) == ("passed", 9.0)
    assert record["verification"]["status"] == "failed"
    assert [check["speedup"] for check in record["verification"]["checks"]] == [1.0, 1.0]
    assert http.get("/api/v1/leaderboard", params={"problem": "relu", "device": "cpu"}).json()["entries"] == []
    assert "so it was withdrawn from the leaderboards" in page(http, f"/submissions/{submission_id}")


def test_versions_of_torch_and_cuda_are_ranked_apart_and_the_newest_is_shown(http: httpx.Client, seeds: Seeds) -> None:
    old = record_made(seeds, 3.0, torch="2.10.0", cuda="12.8")
    new = record_made(seeds, 2.0, torch="2.11.0", cuda="13.0")
    asked = {"problem": "relu", "device": "cpu"}

    def board(**more: str) -> list[tuple[str, int, str]]:
        entries = http.get("/api/v1/leaderboard", params={**asked, **more}).json()["entries"]
        return [(entry["submission"], entry["rank"], entry["software"]) for entry in entries]

    assert board() == [(new, 1, "torch 2.11.0, CUDA 13.0")]
    assert board(software="torch 2.10.0, CUDA 12.8") == [(old, 1, "torch 2.10.0, CUDA 12.8")]
    shown = page(http, "/problems/relu")
    assert "under torch 2.11.0, CUDA 13.0: 1 ranked" in shown
    assert "<option>torch 2.10.0, CUDA 12.8</option>" in shown
    assert "under torch 2.10.0, CUDA 12.8: 1 ranked" in page(http, "/problems/relu?software=torch+2.10.0,+CUDA+12.8")
    leaders = page(http, "/")
    assert new in leaders.partition('id="submissions"')[0]
    assert f'href="/submissions/{old}"' not in leaders.partition('id="submissions"')[0]
