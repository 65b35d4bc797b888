"""The commands that talk to a service."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest

from evaluator.evaluation import Verdict
from evaluator.flags import Flag, FlagKind
from kerneljudge.client import Client
from kerneljudge.records import SubmissionRecord
from kerneljudge.terms.findings import Fault
from tests.api.seeds import SOURCE, Seeds, failed, passed
from tests.kerneljudge.conftest import KNOWN, PROBLEM_IDS, Cli


@pytest.fixture
def candidate(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(SOURCE)
    return path


def grade_soon(seeds: Seeds, verdict: Verdict = Verdict.PASSED, fault: Fault | None = None) -> threading.Thread:
    """Grades the first submission that comes in, as a worker would; finds ``fault`` a while after its verdict."""
    flags = (Flag(FlagKind.LIBRARY_ONLY, 1, "no kernel of its own"),)
    evaluation = passed(seeds.problems["relu"], flags=flags)
    if verdict is not Verdict.PASSED:
        details = {"device_fault": "illegal memory access"} if verdict is Verdict.RUNTIME_ERROR else {}
        evaluation = failed(
            seeds.problems["relu"], verdict, "element (3, 5) is 1, not 0", hints=("look closer",), details=details
        )

    def grade() -> None:
        from storage.submissions.listing import page_of_submissions

        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with seeds.sessions() as session:
                items = page_of_submissions(session).items
            if items:
                seeds.evaluate(items[0].id, evaluation)
                if fault is not None:
                    # Later than the verdict is shown.
                    time.sleep(1.5)
                    seeds.diagnose(items[0].id, faults=(fault,), stage="forward")
                return
            time.sleep(0.05)

    thread = threading.Thread(target=grade)
    thread.start()
    return thread


def test_submit_prints_the_id_and_where_to_look(online: Cli, candidate: Path) -> None:
    result = online("submit", candidate, "--problem", "relu")
    assert result.exit_code == 0
    assert result.stdout.startswith("sub_")
    assert len(result.stdout.split()) == 1
    assert f"http://testserver/submissions/{result.stdout.strip()}" in result.stderr


def test_submit_watches_until_the_verdict(online: Cli, candidate: Path, seeds: Seeds) -> None:
    grader = grade_soon(seeds)
    result = online("submit", candidate, "-p", "relu", "--watch")
    grader.join()
    assert result.exit_code == 0
    assert "passed  relu (cpu, smoke, float32)" in result.stdout
    assert "2.00" in result.stdout
    assert "advisory: library only, line 1: no kernel of its own" in result.stdout


def test_a_candidate_that_did_not_pass_is_status_1(online: Cli, candidate: Path, seeds: Seeds) -> None:
    grader = grade_soon(seeds, Verdict.WRONG_OUTPUT)
    result = online("submit", candidate, "-p", "relu", "--watch")
    grader.join()
    assert result.exit_code == 1
    for words in ("wrong output", "element (3, 5) is 1, not 0", "hint: look closer"):
        assert words in result.stdout


@pytest.mark.parametrize("follow", [True, False])
def test_submit_follows_the_diagnosis_of_a_device_fault_where_asked_to(
    online: Cli, candidate: Path, seeds: Seeds, follow: bool
) -> None:
    seeds.diagnosing_worker()
    fault = Fault("Invalid write", "relu", "cuda.cu", 8, 3, "x[i] = 0;", (1, 0, 0), (2, 0, 0))
    grader = grade_soon(seeds, Verdict.RUNTIME_ERROR, fault if follow else None)
    options = ("--diagnosis",) if follow else ()
    result = online("submit", candidate, "-p", "relu", "--device", "cuda", "--watch", *options)
    grader.join()
    # The verdict decides the status, whatever was found.
    assert result.exit_code == 1, result.output
    assert "runtime error  relu" in result.stdout
    if follow:
        assert "diagnosis, memcheck" in result.stderr
        assert "Invalid write in kernel relu at line 3" in result.stdout
    else:
        assert "diagnosis (memcheck): pending" in result.stdout


def test_json_is_one_object_and_nothing_else(online: Cli, candidate: Path, seeds: Seeds) -> None:
    grader = grade_soon(seeds)
    result = online("submit", candidate, "-p", "relu", "--watch", "--json")
    grader.join()
    record = json.loads(result.stdout)
    assert set(record) == set(SubmissionRecord.__annotations__)
    assert (result.exit_code, record["verdict"], record["label"]) == (0, "passed", "mine.py")


def test_every_option_of_submit_reaches_the_service(online: Cli, candidate: Path) -> None:
    result = online(
        "submit", candidate, "-p", "linear_relu_divide", "--device", "cuda", "--size", "smoke", "--precision",
        "bfloat16", "--no-require-gradients", "--limits", "call_s=5", "--tier", "quick", "--label", "l",
        "--rules", "languages=cuda+triton,no_lower_precision=true",
        "--author", "a", "--metadata", '{"step": 3}', "--json",
    )  # fmt: skip
    record = json.loads(result.stdout)
    wanted = {
        "problem": "linear_relu_divide", "device": "cuda", "size": "smoke", "precision": "bfloat16",
        "require_gradients": False, "limits": {"call_s": 5.0}, "tier": "quick", "label": "l",
        "rules": {"languages": ["cuda", "triton"], "no_lower_precision": True},
        "author": "a", "metadata": {"step": 3}, "parent": None, "status": "queued",
    }  # fmt: skip
    assert record | wanted == record


def test_submit_names_the_parent(online: Cli, candidate: Path, seeds: Seeds) -> None:
    parent = seeds.passed()
    result = online("submit", candidate, "-p", "relu", "--parent", parent, "--json")
    assert json.loads(result.stdout)["parent"] == parent
    refused = online("submit", candidate, "-p", "relu", "--parent", "sub_none")
    assert refused.exit_code == 2
    assert "no submission 'sub_none'" in refused.stderr


def test_two_batches_are_compared(online: Cli, service: Client, seeds: Seeds) -> None:
    common, ids = ("relu", "gelu", "softmax", "gemm", "moments", "layer_norm"), []
    for problems, verdict in (((*common, "group_norm"), Verdict.PASSED), (common, Verdict.WRONG_OUTPUT)):
        given = [{"problem": problem, "device": "cpu", "code": f"{SOURCE}# {verdict}"} for problem in problems]
        lines = [json.dumps(line).encode() + b"\n" for line in given]
        ids.append(service.submit_batch(lines, idempotency_key=verdict)["id"])
        for row in service.submissions(status="queued", limit=100)["items"]:
            task = seeds.problems[row["problem"]]
            seeds.evaluate(row["id"], passed(task) if verdict is Verdict.PASSED else failed(task, verdict, "wrong"))
    result = online("batches", "compare", *ids)
    assert result.exit_code == 0, result.output
    assert f"{ids[0]} minus {ids[1]}  on 6 common problems" in result.stdout
    assert f"{ids[0]}: 6 candidates; 1 more problems" in result.stdout
    for row in ("fast_1 ", "pass@1 above 1 "):
        (line,) = [each for each in result.stdout.splitlines() if each.strip().startswith(row)]
        assert line.strip().removeprefix(row).split()[:5] == ["100.0", "%", "0.0", "%", "+100.0"]
        assert "higher" in line
    found = json.loads(online("batches", "compare", *ids, "--json").stdout)
    assert found == service.compare_batches(*ids)
    assert found["fast_p"][0]["batch_only"] == 6
    assert online("batches", "compare", ids[0], "bat_none").exit_code == 2


@pytest.mark.parametrize(("metadata", "message"), [("{", "not JSON"), ("[1]", "must be a JSON object")])
def test_metadata_that_is_no_object_is_bad_usage(online: Cli, candidate: Path, metadata: str, message: str) -> None:
    result = online("submit", candidate, "-p", "relu", "--metadata", metadata)
    assert result.exit_code == 2
    assert message in result.stderr


@pytest.mark.parametrize("command", ["submit", "grade"])
def test_a_limit_that_there_is_none_of_is_bad_usage(online: Cli, candidate: Path, tmp_path: Path, command: str) -> None:
    out = ["--out", tmp_path / "out.jsonl"] if command == "grade" else []
    given = candidate.parent if command == "grade" else candidate
    result = online(command, given, "-p", "relu", "--limits", "nap_s=5", *out)
    assert result.exit_code == 2
    assert "there is no limit 'nap_s'" in result.stderr


def test_source_that_is_no_candidate_is_status_1_at_once(online: Cli) -> None:
    result = online("submit", "-", "-p", "relu", stdin="x = 1\n")
    assert result.exit_code == 1
    assert "invalid source" in result.stdout


@pytest.mark.parametrize(("name", "flags"), [("a.md", []), ("a.txt", []), ("a.py", ["--response"])])
def test_an_answer_is_handed_in_as_an_answer(online: Cli, tmp_path: Path, name: str, flags: list[str]) -> None:
    (tmp_path / name).write_text(f"Sure:\n```python\n{SOURCE}```\n")
    record = json.loads(online("submit", tmp_path / name, "-p", "relu", "--json", *flags).stdout)
    assert record["status"] == "queued"


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["submit", "none.py", "-p", "relu"], "cannot read none.py"),
        (["submit", ".", "-p", "relu"], "Is a directory"),
        (["submit", "mine.py", "-p", "rleu"], KNOWN),
        (["submit", "mine.py", "-p", "relu", "--size", "huge"], "full, medium, smoke"),
        (["submit", "mine.py", "-p", "relu", "--device", "tpu"], "device"),
        (["submit", "mine.py"], "--problem"),
        (["submit", "mine.py", "-p", "relu", "--colour"], "--colour"),
        (["leaderboard", "rleu"], KNOWN),
        (["leaderboard", "relu", "--track", "x"], "track"),
        (["problems", "show", "rleu", "--url", "http://testserver"], KNOWN),
        (["explode"], "explode"),
    ],
)
def test_bad_usage_is_status_2_and_says_why(online: Cli, candidate: Path, argv: list[str], words: str) -> None:
    result = online(*argv)
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["none.py", "-p", "relu"], "cannot read none.py"),
        (["bytes.py", "-p", "relu"], "not UTF-8"),
        (["mine.py", "-p", "rleu"], KNOWN),
        (["mine.py", "-p", "relu", "--size", "huge"], "full, medium, smoke"),
        (["mine.py", "-p", "relu", "--device", "tpu"], "device"),
    ],
)
def test_what_is_refused_is_one_object_in_json(
    online: Cli, candidate: Path, tmp_path: Path, argv: list[str], words: str
) -> None:
    assert candidate.exists()
    (tmp_path / "bytes.py").write_bytes(b"\xff\xfe")
    result = online("submit", *argv, "--json")
    assert result.exit_code == 2
    record = json.loads(result.stdout)
    assert set(record) == set(SubmissionRecord.__annotations__)
    assert (record["status"], record["verdict"], record["id"]) == ("failed", None, None)
    assert words in record["message"]
    assert words in result.stderr


@pytest.mark.parametrize("argv", [["leaderboard", "rleu"], ["problems", "show", "rleu", "--url", "http://testserver"]])
def test_an_answer_that_there_is_none_of_is_an_error_in_json(online: Cli, argv: list[str]) -> None:
    result = online(*argv, "--json")
    assert result.exit_code == 2
    assert KNOWN in json.loads(result.stdout)["error"]


def test_submit_says_that_nobody_can_take_it(online: Cli, candidate: Path, seeds: Seeds) -> None:
    words = "waiting for a worker for device cuda: none is running"
    seeds.worker("b", "build", "build", None)
    result = online("submit", candidate, "-p", "relu", "--device", "cuda")
    assert words in result.stderr
    record = json.loads(online("submit", candidate, "-p", "relu", "--device", "cuda", "--json").stdout)
    assert record["message"] == words


def test_submit_may_ask_for_a_device_by_its_name(online: Cli, candidate: Path) -> None:
    argv = ["submit", candidate, "-p", "relu", "--device", "cuda", "--device-name", "NVIDIA H200", "--json"]
    record = json.loads(online(*argv).stdout)
    assert record["requirements"]["device_name"] == "NVIDIA H200"
    assert "a worker for device cuda of the name NVIDIA H200: none is running" in record["waiting_for"]


def test_watching_says_that_nobody_can_take_it(online: Cli, candidate: Path, seeds: Seeds) -> None:
    from storage.submissions.listing import page_of_submissions
    from storage.submissions.submissions import Submissions

    def cancel() -> None:
        with seeds.sessions.begin() as session:
            for item in page_of_submissions(session).items:
                Submissions(session).cancel(item.id)

    canceller = threading.Timer(2.0, cancel)
    canceller.start()
    result = online("submit", candidate, "-p", "relu", "--device", "cuda", "--watch")
    canceller.join()
    assert result.exit_code == 3
    assert "none is running, number 1 in its queue" in result.stderr


def test_a_file_that_is_no_text_is_bad_usage(online: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(b"\xff\xfe")
    result = online("submit", tmp_path / "a.py", "-p", "relu")
    assert result.exit_code == 2
    assert "not UTF-8" in result.stderr


def test_a_service_that_is_away_is_our_fault(cli: Cli, candidate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kerneljudge.client._RETRIES", 0)
    monkeypatch.setattr("kerneljudge._http._FIRST_PAUSE_S", 0.0)
    result = cli("submit", candidate, "-p", "relu", "--url", "http://127.0.0.1:9", "--json")
    assert result.exit_code == 3
    record = json.loads(result.stdout)
    assert set(record) == set(SubmissionRecord.__annotations__)
    assert (record["status"], record["verdict"]) == ("failed", None)
    assert "cannot reach http://127.0.0.1:9" in record["message"]
    assert cli("leaderboard", "--url", "http://127.0.0.1:9").exit_code == 3


def test_a_submission_that_was_cancelled_got_no_verdict(online: Cli, candidate: Path, seeds: Seeds) -> None:
    def cancel() -> None:
        from storage.submissions.listing import page_of_submissions
        from storage.submissions.submissions import Submissions

        while True:
            with seeds.sessions.begin() as session:
                for item in page_of_submissions(session).items:
                    Submissions(session).cancel(item.id)
                    return
            time.sleep(0.05)

    canceller = threading.Thread(target=cancel)
    canceller.start()
    result = online("submit", candidate, "-p", "relu", "--watch")
    canceller.join()
    assert result.exit_code == 3
    assert "cancelled" in result.stdout


def test_the_leaderboard_is_a_table(online: Cli, seeds: Seeds) -> None:
    seeds.passed(label="fused", author="ann")
    result = online("leaderboard", "relu")
    assert result.exit_code == 0
    for words in ("fused", "ann", "2.00", "a processor"):
        assert words in result.stdout
    everything = online("leaderboard").stdout
    assert "linear_relu_divide, inference, cpu, smoke, float32: no entry yet" in everything


def test_the_leaderboard_as_json(online: Cli, seeds: Seeds) -> None:
    seeds.passed(label="fused")
    board = json.loads(online("leaderboard", "relu", "--json", "--track", "training").stdout)
    assert (board["track"], board["entries"][0]["speedup"]) == ("training", 1.5)
    boards = json.loads(online("leaderboard", "--json", "--device", "cuda", "--size", "smoke").stdout)["boards"]
    assert [(board["problem"], board["device"], board["size"]) for board in boards] == [
        (problem, "cuda", "smoke") for problem in PROBLEM_IDS
    ]


def test_problems_come_from_the_service_where_one_is_named(online: Cli) -> None:
    result = online("problems", "list", "--url", "http://testserver", "--json")
    assert [item["id"] for item in json.loads(result.stdout)["items"]] == PROBLEM_IDS
    assert "class Model" in online("problems", "show", "relu", "--url", "http://testserver").stdout
