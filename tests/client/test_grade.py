"""``kerneljudge grade``: many candidates, through a service and on this machine."""

from __future__ import annotations

import csv
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import client.cli
from client.http import Client
from client.inputs import Fields, KnownProblems, read_work
from client.outcomes import BadUsage
from client.records import ProblemRecord
from client.sources import UnusableFile
from evaluator.evaluation import Verdict
from storage.submissions import Submissions
from tests.api.seeds import SOURCE, Seeds, failed, passed
from tests.client.conftest import CANDIDATES, PROBLEMS, Cli

HONEST = (CANDIDATES / "relu_honest_plain" / "candidate.py").read_text()
WRONG = (CANDIDATES / "relu_abs" / "candidate.py").read_text()


def problem(problem_id: str, tags: tuple[str, ...] = (), identity: dict[str, Any] | None = None) -> ProblemRecord:
    record: Any = {"id": problem_id, "tags": list(tags), "kernelbench": identity}
    return record


KNOWN = KnownProblems(
    [
        problem("relu", identity={"level": 1, "problem_id": 19, "name": "19_ReLU"}),
        problem("kernelbench_level2_63_gemm"),
        problem("other", ("level3/7_Net",)),
        problem("gelu"),
    ]
)


def write_lines(path: Path, *lines: Mapping[str, Any]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_lines_may_have_any_shape(tmp_path: Path) -> None:
    given = write_lines(
        tmp_path / "in.jsonl",
        {"kernel": "a", "task": "relu", "id": "x"},
        {"answer": "b", "task": "level1/19_ReLU.py", "id": 7},
        {"kernel": None, "answer": None, "id": "y"},
    )
    fields = Fields(code="kernel", response="answer", problem="task", key="id")
    found = [(w.key, w.problem, w.text, w.is_response, w.sample) for w in read_work(given, fields, "gelu", KNOWN)]
    assert found == [("x", "relu", "a", False, 0), ("7", "relu", "b", True, 1), ("y", "gelu", "", True, 0)]


def test_a_folder_names_problems_by_its_folders(tmp_path: Path) -> None:
    for name in ("relu/a.py", "relu/b.py", "gelu/a.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    found = [(w.key, w.problem, w.text, w.sample) for w in read_work(tmp_path, Fields(), None, KNOWN)]
    assert found == [
        ("gelu/a.py", "gelu", "gelu/a.py", 0),
        ("relu/a.py", "relu", "relu/a.py", 0),
        ("relu/b.py", "relu", "relu/b.py", 1),
    ]
    assert {w.problem for w in read_work(tmp_path, Fields(), "relu", KNOWN)} == {"relu"}


def test_a_run_of_kernelbench_is_found_by_level_and_number(tmp_path: Path) -> None:
    for level, number, sample in ((1, 19, 10), (1, 19, 2), (2, 63, 0), (3, 7, 0)):
        (tmp_path / f"level_{level}_problem_{number}_sample_{sample}_kernel.py").write_text("x")
    (tmp_path / "level_1_problem_19_sample_2_prompt.txt").write_text("prompt")
    found = [(w.problem, w.sample) for w in read_work(tmp_path, Fields(), None, KNOWN)]
    assert found == [("relu", 2), ("relu", 10), ("kernelbench_level2_63_gemm", 0), ("other", 0)]
    (tmp_path / "level_4_problem_1_sample_0_kernel.py").write_text("x")
    with pytest.raises(BadUsage, match="level 4 problem 1; there are: level 1 problem 19, level 2 problem 63, level 3"):
        read_work(tmp_path, Fields(), None, KNOWN)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{\n", "line 1: not JSON"),
        ("[]\n", "line 1: not an object"),
        ('{"code": "x"}\n', "line 1: no problem in the field 'problem'"),
        ('{"code": "x", "problem": "rleu"}\n', "no problem 'rleu'; there are relu"),
        ('{"text": "x", "problem": "relu"}\n', "they have problem, text. See --code-field"),
        ("\n", "nothing to grade"),
    ],
)
def test_an_input_that_is_none_says_why(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "in.jsonl").write_text(text)
    with pytest.raises(BadUsage) as caught:
        read_work(tmp_path / "in.jsonl", Fields(), None, KNOWN)
    assert words in str(caught.value)


def test_keys_must_be_there_and_differ(tmp_path: Path) -> None:
    given = write_lines(tmp_path / "in.jsonl", *[{"code": "x", "problem": "relu", "id": "a"}] * 2)
    with pytest.raises(BadUsage, match="'a' is there more than once"):
        read_work(given, Fields(key="id"), None, KNOWN)
    with pytest.raises(BadUsage, match="no key in the field 'name'"):
        read_work(given, Fields(key="name"), None, KNOWN)
    with pytest.raises(UnusableFile, match="cannot read"):
        read_work(tmp_path / "none.jsonl", Fields(), None, KNOWN)


@pytest.fixture
def grading(seeds: Seeds) -> Iterator[Callable[[], None]]:
    """Grades whatever comes in, as workers would, once started: what is wrong by its source is wrong."""
    ended = threading.Event()

    def work() -> None:
        while not ended.wait(0.05):
            with seeds.sessions() as session:
                waiting = [row.id for row in Submissions(session).page().items if row.status == "queued"]
                sources = {each: Submissions(session).source_of(each) for each in waiting}
            for each, source in sources.items():
                wrong = "wrong" in source
                evaluation = (
                    failed(seeds.problems["relu"], Verdict.WRONG_OUTPUT, "=1+1, not 0")
                    if wrong
                    else passed(seeds.problems["relu"])
                )
                seeds.evaluate(each, evaluation)

    thread = threading.Thread(target=work)
    yield thread.start
    ended.set()
    if thread.ident is not None:
        thread.join()


def given_lines(tmp_path: Path, count: int = 3) -> Path:
    lines = [{"problem": "relu", "code": f"{SOURCE}# {'wrong' if n == 1 else ''} {n}\n"} for n in range(count)]
    return write_lines(tmp_path / "in.jsonl", *lines)


def test_through_a_service_and_resumed(online: Cli, tmp_path: Path, grading: Callable[[], None]) -> None:
    grading()
    given, out = given_lines(tmp_path), tmp_path / "out.jsonl"
    kb = tmp_path / "eval_results.json"
    result = online("grade", given, "--out", out, "--device", "cpu", "--author", "me", "--eval-results", kb)
    assert result.exit_code == 1, result.output
    assert "2 of 3 passed" in result.stdout
    assert "pass@1 66.7 %" in result.stdout
    assert "level 1" in result.stdout
    assert "grading: 0 of 3" in result.stderr
    lines = read_lines(out)
    assert sorted((line["key"], line["verdict"]) for line in lines) == [
        ("1", "passed"),
        ("2", "wrong_output"),
        ("3", "passed"),
    ]
    assert {(line["author"], line["device"], line["size"]) for line in lines} == {("me", "cpu", "smoke")}
    entries = json.loads(kb.read_text())["19"]
    assert [(e["sample_id"], e["compiled"], e["correctness"], e["runtime"]) for e in entries] == [
        (0, True, True, 1.0), (1, True, False, -1.0), (2, True, True, 1.0),
    ]  # fmt: skip
    assert entries[0]["runtime_stats"]["num_trials"] == 1
    assert entries[1]["metadata"]["correctness_issue_name"] == "wrong_output"
    assert set(entries[0]) == {"sample_id", "compiled", "correctness", "metadata", "runtime", "runtime_stats"}

    # Nothing of it is graded again; what has changed and what was cut off is.
    given_lines(tmp_path, 5)
    text = given.read_text().replace("# wrong 1", "# right 1")
    given.write_text(text)
    out.write_text(out.read_text() + '{"key": "4", "dig')
    result = online("grade", given, "--out", out, "--device", "cpu", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["overall"]["correct"] == 5
    assert "2 of 5 are in" in result.stderr
    assert len(read_lines(out)) == 6


def test_csv_is_written_and_read_again(online: Cli, tmp_path: Path, grading: Callable[[], None]) -> None:
    grading()
    given, out = given_lines(tmp_path), tmp_path / "out.csv"
    assert online("grade", given, "--out", out).exit_code == 1
    with out.open(newline="") as stream:
        rows = {row["key"]: row for row in csv.DictReader(stream)}
    assert (rows["1"]["speedup"], rows["1"]["speedup_low"], rows["1"]["latency_ms"]) == ("2.0", "1.9", "1.0")
    assert rows["2"]["message"] == "'=1+1, not 0"
    again = online("grade", given, "--out", out)
    assert "3 of 3 are in" in again.stderr
    assert (again.exit_code, "2 of 3 passed" in again.stdout) == (1, True)


def test_a_line_that_the_service_refuses_is_status_2_and_sinks_no_other(
    online: Cli, tmp_path: Path, grading: Callable[[], None]
) -> None:
    grading()
    given = write_lines(
        tmp_path / "in.jsonl", {"problem": "relu", "code": SOURCE}, {"problem": "softmax", "code": SOURCE}
    )
    result = online("grade", given, "--out", tmp_path / "out.jsonl", "--size", "medium")
    lines = {line["key"]: line for line in read_lines(tmp_path / "out.jsonl")}
    assert lines["1"]["verdict"] == "passed"
    assert (result.exit_code, lines["2"]["status"]) == (2, "failed")
    assert "refused: size" in lines["2"]["message"]


def test_what_could_not_be_graded_is_status_3_and_graded_again(
    online: Cli, tmp_path: Path, seeds: Seeds, grading: Callable[[], None]
) -> None:
    given, out = given_lines(tmp_path, 1), tmp_path / "out.jsonl"

    def lose() -> None:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with seeds.sessions() as session:
                items = Submissions(session).page().items
            if items:
                seeds.fault(seeds.claim_build(items[0].id), "the judge died", final=True)
                return
            time.sleep(0.05)

    thread = threading.Thread(target=lose)
    thread.start()
    result = online("grade", given, "--out", out)
    thread.join()
    assert result.exit_code == 3, result.output
    assert "1 were not graded" in result.stdout
    grading()
    assert online("grade", given, "--out", out).exit_code == 0
    assert [line["status"] for line in read_lines(out)] == ["failed", "done"]


def test_without_a_service_it_is_graded_here(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client.cli, "connect", lambda _url: Client("http://127.0.0.1:9"))
    run = tmp_path / "run"
    run.mkdir()
    for sample, source in enumerate((HONEST, WRONG, HONEST, "x = (")):
        (run / f"level_1_problem_19_sample_{sample}_kernel.py").write_text(source)
    out, kb = tmp_path / "out.jsonl", tmp_path / "kb.json"
    argv = ["grade", run, "--out", out, "--device", "cpu", "--problems-dir", PROBLEMS, "--eval-results", kb]
    result = cli(*argv)
    assert result.exit_code == 1, result.output
    assert "on this machine" in result.stderr
    lines = read_lines(out)
    assert [line["verdict"] for line in lines] == ["passed", "wrong_output", "passed", "invalid_source"]
    # The same is graded once.
    assert lines[0]["timeline"] == lines[2]["timeline"]
    entries = json.loads(kb.read_text())["19"]
    assert [entry["compiled"] for entry in entries] == [True, True, True, False]
    stats = entries[0]["runtime_stats"]
    assert stats["min"] <= stats["mean"] == entries[0]["runtime"] <= stats["max"]
    assert "4 of 4 are in" in cli(*argv).stderr


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--out", "x.txt"], ".jsonl or .csv"),
        (["--out", "x.csv", "--eval-results", "kb.json"], "let --out end in .jsonl"),
        (["--out", "x.jsonl", "--size", "huge"], "full, medium, smoke"),
        (["--out", "no/such/x.jsonl"], "cannot write"),
        (["--out", "x.jsonl", "--url", "http://127.0.0.1:9"], "cannot reach"),
        (["--out", "x.jsonl", "--device", "cuda:99"], "no device cuda:99"),
    ],
)
def test_what_cannot_be_says_why(
    cli: Cli, tmp_path: Path, argv: list[str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client.cli, "connect", lambda _url: Client("http://127.0.0.1:9", retries=0))
    result = cli("grade", given_lines(tmp_path), "--problems-dir", PROBLEMS, *argv)
    assert result.exit_code == (3 if "url" in " ".join(argv) or "cuda" in " ".join(argv) else 2), result.output
    assert words in result.stderr


def test_problems_outside_of_kernelbench_have_no_eval_results(cli: Cli, tmp_path: Path) -> None:
    given = write_lines(tmp_path / "in.jsonl", {"problem": "softmax", "code": SOURCE})
    result = cli("grade", given, "--out", "x.jsonl", "--eval-results", "kb.json", "--problems-dir", PROBLEMS)
    assert result.exit_code == 2
    assert "softmax is none" in result.stderr
