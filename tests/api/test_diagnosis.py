"""Diagnoses over HTTP and on pages: asked for, followed, and shown without being markup."""

from __future__ import annotations

import re

import httpx

from api.labels import DIAGNOSES
from evaluator.evaluation import Verdict
from kerneljudge.terms.findings import Diagnosis, Fault, KernelCounters, Tool
from storage.models import DiagnosisStatus
from storage.queue.workers import unregister
from tests.api.conftest import assert_problem, fields
from tests.api.seeds import Seeds, failed
from tests.api.test_pages import HOSTILE, page

FAULT = Fault(
    "Invalid __global__ write of size 4 bytes", "relu", "cuda.cu", 8, 3, "y[i] = x[i];", (1, 0, 0), (2, 0, 0),
    ("Access at 0x10 is out of bounds",), 7,
)  # fmt: skip


def link(submission_id: str) -> str:
    return f"/api/v1/submissions/{submission_id}/diagnosis"


def test_a_device_fault_has_its_diagnosis_in_the_record(http: httpx.Client, seeds: Seeds) -> None:
    seeds.diagnosing_worker()
    submission_id = seeds.faulted()
    before = http.get(f"/api/v1/submissions/{submission_id}").json()
    assert before["links"]["diagnosis"] == link(submission_id)
    pending = before["diagnosis"]
    assert (pending["tool"], pending["status"], pending["result"]) == ("memcheck", "pending", None)
    seeds.diagnose(submission_id, faults=(FAULT,), stage="forward", error="RuntimeError: CUDA error")
    after = http.get(f"/api/v1/submissions/{submission_id}").json()
    done = after["diagnosis"]
    assert (done["status"], done["attempts"], done["message"]) == ("done", 1, "")
    assert done["requested"] <= done["started"] <= done["finished"]
    assert Diagnosis.from_dict(done["result"]).faults == (FAULT,)
    assert done["result"]["printed"] == ""
    # Nothing but the diagnosis has changed.
    assert {**before, "diagnosis": None} == {**after, "diagnosis": None}
    assert http.get(link(submission_id)).json() == {**done, "result": {**done["result"], "printed": "it ran\n"}}
    listed = http.get("/api/v1/submissions").json()["items"]
    assert [item["diagnosis"] for item in listed] == [None]


def test_a_diagnosis_is_asked_for_by_tool(http: httpx.Client, seeds: Seeds) -> None:
    seeds.diagnosing_worker("compute-sanitizer", "ncu")
    submission_id = seeds.passed(device="cuda", evaluation={"device": "cuda"})
    assert_problem(http.get(link(submission_id)), 404)
    first = http.post(link(submission_id))
    assert (first.status_code, first.json()["tool"], first.json()["status"]) == (202, "memcheck", "pending")
    assert http.post(link(submission_id)).json() == first.json()
    counters = http.post(link(submission_id), params={"tool": "counters"})
    assert (counters.status_code, counters.json()["tool"]) == (202, "counters")
    # The one that was asked for last, unless another one is named.
    assert http.get(link(submission_id)).json()["tool"] == "counters"
    assert http.get(link(submission_id), params={"tool": "memcheck"}).json() == first.json()
    assert http.get(f"/api/v1/submissions/{submission_id}").json()["diagnosis"]["tool"] == "counters"
    missing = assert_problem(http.get(link(submission_id), params={"tool": "racecheck"}), 404)
    assert missing["detail"] == f"submission {submission_id} has no diagnosis by racecheck"
    seeds.diagnose(submission_id)
    again = http.post(link(submission_id)).json()
    assert (again["status"], again["result"]) == ("pending", None)


def test_what_cannot_be_diagnosed_is_refused_with_the_reason(http: httpx.Client, seeds: Seeds) -> None:
    seeds.diagnosing_worker()
    relu = seeds.problems["relu"]
    compiled_not = failed(relu, Verdict.COMPILE_ERROR, "line 3: no", device="cuda")
    for submission_id, reason in (
        (seeds.passed(), "is for device cpu, and these tools know of CUDA alone"),
        (seeds.submit(device="cuda"), "is queued: only what was evaluated can be diagnosed"),
        (seeds.evaluate(seeds.submit(device="cuda"), compiled_not), "its verdict is compile_error"),
    ):
        problem = assert_problem(http.post(link(submission_id)), 409)
        assert problem["type"] == "urn:kerneljudge:error:conflict"
        assert reason in str(problem["detail"])
        assert_problem(http.get(link(submission_id)), 404)
    on_cuda = seeds.faulted()
    problem = assert_problem(http.post(link(on_cuda), params={"tool": "counters"}), 409)
    assert problem["detail"] == "no worker with a CUDA device and ncu is running"
    assert fields(assert_problem(http.post(link(on_cuda), params={"tool": "valgrind"}), 422)) == {"tool"}
    for method in ("GET", "POST"):
        assert_problem(http.request(method, link("sub_none")), 404)


def test_a_diagnosis_that_nobody_can_make_any_more_says_so(http: httpx.Client, seeds: Seeds) -> None:
    seeds.diagnosing_worker()
    submission_id = seeds.faulted()
    assert http.get(link(submission_id)).json()["message"] == ""
    with seeds.sessions.begin() as session:
        unregister(session, "gpu")
    waiting_for = "waiting for a worker with a CUDA device and compute-sanitizer: none is running"
    assert http.get(link(submission_id)).json()["message"] == waiting_for
    assert waiting_for in page(http, f"/submissions/{submission_id}")


def test_the_page_renews_itself_until_the_diagnosis_is_there(http: httpx.Client, seeds: Seeds) -> None:
    seeds.diagnosing_worker()
    submission_id = seeds.faulted()
    waiting = page(http, f"/submissions/{submission_id}")
    assert '<meta http-equiv="refresh"' in waiting
    assert '<h2 id="diagnosis">Diagnosis</h2>' in waiting
    assert "waiting in the queue, after all evaluations" in waiting
    seeds.diagnose(submission_id, faults=(FAULT,), stage="forward", error="RuntimeError: CUDA error")
    html = page(http, f"/submissions/{submission_id}")
    assert '<meta http-equiv="refresh"' not in html
    for words in (
        "memcheck reports faults at 1 place",
        "Invalid __global__ write of size 4 bytes",
        "<code>relu</code>",
        "line 3: <code>y[i] = x[i];</code>",
        "<td>1, 0, 0</td><td>2, 0, 0</td>",
        "Access at 0x10 is out of bounds",
        "in forward: RuntimeError: CUDA error",
    ):
        assert words in html, html
    assert "Diagnosis</h2>" not in page(http, f"/submissions/{seeds.passed()}")


def test_the_page_shows_every_tool_and_counters_as_a_table(http: httpx.Client, seeds: Seeds) -> None:
    seeds.diagnosing_worker("compute-sanitizer", "ncu")
    submission_id = seeds.faulted()
    http.post(link(submission_id), params={"tool": "counters"})
    launch = KernelCounters("relu", "(4, 1, 1)", "(256, 1, 1)", 3.0, 4e6, 2e6, 0.755, 0.1225, 0.88, 32, 0, 0)
    seeds.diagnose(submission_id, Tool.COUNTERS, counters=(launch, KernelCounters("other")), notes=("it spills",))
    html = page(http, f"/submissions/{submission_id}")
    for words in ("<strong>memcheck</strong>", "<strong>counters</strong>", "3.0 µs", "2000", "75.5 %", "12.2 %",
                  "88.0 %", "(256, 1, 1)", "it spills"):  # fmt: skip
        assert words in html, words


def test_nothing_that_a_candidate_wrote_is_markup(http: httpx.Client, seeds: Seeds) -> None:
    seeds.diagnosing_worker("compute-sanitizer", "ncu")
    submission_id = seeds.faulted()
    http.post(link(submission_id), params={"tool": "counters"})
    fault = Fault(HOSTILE, HOSTILE, HOSTILE, 8, 3, HOSTILE, (1, 0, 0), (2, 0, 0), (HOSTILE,))
    unplaced = Fault(HOSTILE, HOSTILE, HOSTILE, 8)
    seeds.diagnose(submission_id, faults=(fault, unplaced), error=HOSTILE, stage="forward", notes=(HOSTILE,))
    seeds.diagnose(submission_id, Tool.COUNTERS, counters=(KernelCounters(HOSTILE, HOSTILE, HOSTILE),))
    html = page(http, f"/submissions/{submission_id}")
    assert "<script>" not in html
    assert "<img src=x" not in html
    assert "49" not in re.findall(r"onerror=alert\(1\)&gt;(\S\S)", html)
    assert html.count("&lt;script&gt;") >= 10


def test_every_status_of_a_diagnosis_has_words() -> None:
    assert set(DIAGNOSES) == set(DiagnosisStatus)
