"""``kerneljudge grade``: many candidates, through a service and on this machine."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pyarrow
import pyarrow.parquet
import pytest

import evaluator.engine
import kerneljudge.cli.service
import kerneljudge.grading.grade
from evaluator.candidates.candidate import Candidate
from evaluator.config import TIERS
from evaluator.errors import (
    DeviceUnavailable,
    DoesNotFit,
    InfrastructureFault,
    ProblemError,
    SandboxIncomplete,
    ToolchainMissing,
)
from evaluator.evaluation import Verdict
from evaluator.problems.problem import Problem
from kerneljudge.cli.output import BadUsage
from kerneljudge.client import Client
from kerneljudge.grading.inputs import Fields, Input, KnownProblems, Refused, Survey, Work
from kerneljudge.grading.local_record import blank_record
from kerneljudge.grading.results import ResultFile, is_unsettled
from kerneljudge.grading.sources import UnusableFile
from kerneljudge.records import ProblemRecord, RulesRecord
from kerneljudge_server.local import Bench, Outcome
from storage.submissions.listing import page_of_submissions
from storage.submissions.submissions import Submissions
from tests.api.inmemory import AppTransport
from tests.api.seeds import SOURCE, Seeds, failed, passed
from tests.kerneljudge.conftest import CANDIDATES, PROBLEMS, ROOT, Cli

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


def work_in(given: Path, fields: Fields = Fields(), problem: str | None = None) -> list[Work]:  # noqa: B008 - frozen
    """Every candidate in ``given``, in which nothing is refused."""
    found = list(Input(given, fields, problem, KNOWN))
    assert [each for each in found if isinstance(each, Refused)] == []
    return [each for each in found if isinstance(each, Work)]


def survey(given: Path, fields: Fields = Fields(), problem: str | None = None) -> Survey:  # noqa: B008 - frozen
    return Input(given, fields, problem, KNOWN).survey()


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_lines_may_have_any_shape(tmp_path: Path, suffix: str) -> None:
    lines = [
        {"kernel": "a", "task": "relu", "id": "x"},
        {"answer": "b", "task": "level1/19_ReLU.py", "id": "7"},
        {"kernel": None, "answer": None, "id": "y"},
    ]
    given = tmp_path / f"in{suffix}"
    if suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_struct_array(pyarrow.array(lines)), given)
    else:
        write_lines(given, *lines)
    fields = Fields(code="kernel", response="answer", problem="task", key="id")
    found = [(w.key, w.problem, w.text, w.is_response, w.sample) for w in work_in(given, fields, "gelu")]
    assert found == [("x", "relu", "a", False, 0), ("7", "relu", "b", True, 1), ("y", "gelu", "", True, 0)]


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_a_field_may_be_a_path_and_an_answer_a_conversation(tmp_path: Path, suffix: str) -> None:
    lines = [
        {
            "body": {"choices": [{"message": {"content": "first"}}]},
            "messages": [{"role": "user", "content": "write"}, {"role": "assistant", "content": "last"}],
            "meta": {"task": "gelu"},
        }
    ]
    given = tmp_path / f"in{suffix}"
    if suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_struct_array(pyarrow.array(lines)), given)
    else:
        write_lines(given, *lines)
    for field, text in (
        ("body.choices.0.message.content", "first"),
        ("messages", "last"),
        ("messages.-2.content", "write"),
    ):
        (work,) = work_in(given, Fields(response=field, problem="meta.task"))
        assert (work.problem, work.text, work.is_response) == ("gelu", text, True)


def test_a_field_that_is_called_like_a_path_is_that_field(tmp_path: Path) -> None:
    given = write_lines(tmp_path / "in.jsonl", {"a.b": "whole", "a": {"b": "part"}, "problem": "relu"})
    assert [work.text for work in work_in(given, Fields(code="a.b"))] == ["whole"]


def test_only_the_named_columns_of_a_parquet_file_are_read_and_a_few_rows_at_a_time(tmp_path: Path) -> None:
    given = tmp_path / "in.parquet"
    text = pyarrow.array(["x" * 10_000] * 500)
    prompts = pyarrow.array([f"{number}" * 5_000 for number in range(500)])
    table = pyarrow.table({"prompt": prompts, "code": text, "problem": pyarrow.array(["relu"] * 500)})
    with pyarrow.parquet.ParquetWriter(given, table.schema, compression="none", use_dictionary=False) as writer:
        for _ in range(20):
            writer.write_table(table)
    assert given.stat().st_size > 200 * 2**20
    program = (
        "import sys; from pathlib import Path; from kerneljudge.grading.inputs import *; import pyarrow.parquet\n"
        "peak = lambda: int(Path('/proc/self/status').read_text().partition('VmHWM:')[2].split()[0]) / 1024\n"
        "known = KnownProblems([{'id': 'relu', 'tags': [], 'kernelbench': None}]); before = peak()\n"
        "found = Input(Path(sys.argv[1]), Fields(), None, known).survey()\n"
        "print(len(found.entries), peak() - before)"
    )
    argv = [sys.executable, "-c", program, str(given)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True)
    rows, grown_mib = done.stdout.split()
    assert int(rows) == 10_000
    assert float(grown_mib) < 60


def test_a_parquet_file_that_is_none_says_so(tmp_path: Path) -> None:
    given = tmp_path / "in.parquet"
    given.write_text("PAR1, but not really")
    with pytest.raises(UnusableFile, match="as Parquet"):
        survey(given)
    with pytest.raises(UnusableFile, match="No such file"):
        survey(tmp_path / "none.parquet")
    pyarrow.parquet.write_table(pyarrow.table({"a": [1], "b": [2]}), given)
    with pytest.raises(BadUsage, match="they have a, b"):
        survey(given)


def test_without_pyarrow_it_says_what_to_install(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for argv in ([tmp_path / "in.parquet", "--out", "x.jsonl"], [given_lines(tmp_path), "--out", "x.parquet"]):
        result = cli("grade", *argv, "--problems-dir", PROBLEMS, "--device", "cpu")
        assert result.exit_code == 2
        assert "pip install 'kerneljudge[parquet]'" in result.stderr
        assert not list(tmp_path.glob("x.*"))


def test_a_folder_names_problems_by_its_folders(tmp_path: Path) -> None:
    for name in ("relu/a.py", "relu/b.py", "gelu/a.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    found = [(w.key, w.problem, w.text, w.sample) for w in work_in(tmp_path)]
    assert found == [
        ("gelu/a.py", "gelu", "gelu/a.py", 0),
        ("relu/a.py", "relu", "relu/a.py", 0),
        ("relu/b.py", "relu", "relu/b.py", 1),
    ]
    assert {w.problem for w in work_in(tmp_path, problem="relu")} == {"relu"}
    (tmp_path / "relu" / "b.py").write_bytes(b"\xff")
    found_ = survey(tmp_path)
    assert [entry.key for entry in found_.entries] == ["gelu/a.py", "relu/a.py"]
    assert [(each.where, "not UTF-8" in each.message) for each in found_.refused] == [("relu/b.py", True)]


def test_a_run_of_kernelbench_is_found_by_level_and_number(tmp_path: Path) -> None:
    for level, number, sample in ((1, 19, 10), (1, 19, 2), (2, 63, 0), (3, 7, 0)):
        (tmp_path / f"level_{level}_problem_{number}_sample_{sample}_kernel.py").write_text("x")
    (tmp_path / "level_1_problem_19_sample_2_prompt.txt").write_text("prompt")
    found = [(w.problem, w.sample) for w in work_in(tmp_path)]
    assert found == [("relu", 2), ("relu", 10), ("kernelbench_level2_63_gemm", 0), ("other", 0)]
    assert [KNOWN.number_of(name) for name, _ in found] == [(1, 19), (1, 19), (2, 63), (3, 7)]
    (tmp_path / "level_4_problem_1_sample_0_kernel.py").write_text("x")
    (refused,) = survey(tmp_path).refused
    assert refused.where == "level_4_problem_1_sample_0_kernel.py"
    assert "level 4 problem 1; there are: level 1 problem 19, level 2 problem 63, level 3" in refused.message


NO_CANDIDATES = [
    ("{\n", "line 1: not JSON"),
    ("[]\n", "line 1: not an object"),
    ('{"code": "x"}\n', "line 1: no problem in the field 'problem'"),
    ('{"code": "x", "problem": "rleu"}\n', "line 1: no problem 'rleu'; there are relu"),
    ('{"code": 7, "problem": "relu"}\n', "line 1: the field 'code' holds neither text nor a conversation"),
    ('{"code": "x", "problem": "relu", "no": "key"}\n', "line 1: no key in the field 'id'"),
]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        *NO_CANDIDATES,
        ('{"text": "x", "problem": "relu"}\n', "they have problem, text. See --code-field"),
        ("\n", "nothing to grade"),
        ("", "nothing to grade"),
    ],
)
def test_an_input_that_is_none_says_why(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "in.jsonl").write_text(text)
    with pytest.raises(BadUsage) as caught:
        survey(tmp_path / "in.jsonl", Fields(key="id") if "key" in text else Fields())
    assert words in str(caught.value)


def test_a_line_that_is_none_sinks_no_other(tmp_path: Path) -> None:
    good = '{"code": "x", "problem": "relu", "id": "a"}\n'
    given = tmp_path / "in.jsonl"
    given.write_text("\ufeff" + good + "\n" + "".join(text for text, _ in NO_CANDIDATES))
    found = survey(given, Fields(key="id"))
    assert [entry.key for entry in found.entries] == ["a"]
    assert [each.where for each in found.refused] == [f"line {number}" for number in range(3, 9)]
    given.write_bytes(good.encode() + b"\xff\n")
    assert [each.message for each in survey(given).refused] == ["not UTF-8 text: invalid start byte"]


def test_keys_must_be_there_and_differ(tmp_path: Path) -> None:
    given = write_lines(tmp_path / "in.jsonl", *[{"code": "x", "problem": "relu", "id": "a"}] * 2)
    with pytest.raises(BadUsage, match="'a' is there more than once"):
        survey(given, Fields(key="id"))
    with pytest.raises(BadUsage, match="no key in the field 'name'"):
        survey(given, Fields(key="name"))
    with pytest.raises(UnusableFile, match="cannot read"):
        survey(tmp_path / "none.jsonl")
    with pytest.raises(BadUsage, match="no problem 'rleu'; there are relu"):
        survey(given, problem="rleu")


@pytest.fixture
def grading(seeds: Seeds, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Grades whatever comes in, as workers would, once started: what is wrong by its source is wrong."""
    monkeypatch.setattr(kerneljudge.grading.grade, "_POLL_S", 0.05)
    ended = threading.Event()

    def work() -> None:
        while not ended.wait(0.05):
            with seeds.sessions() as session:
                waiting = [row.id for row in page_of_submissions(session).items if row.status == "queued"]
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
    assert "pass@1 66.7 % (9 \N{EN DASH} 97)" in result.stdout
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


def test_lines_keep_their_metadata_and_parents_through_a_service(
    online: Cli, tmp_path: Path, seeds: Seeds, grading: Callable[[], None]
) -> None:
    parents = [seeds.passed(source=f"{SOURCE}# parent {number}\n") for number in range(2)]
    lines = [
        {"code": SOURCE, "meta": {"of": {"sample": 0}}, "from": parents[0]},
        {"code": SOURCE, "meta": {"of": {"sample": 1}}, "from": parents[1]},
        {"code": SOURCE, "meta": {}},
    ]
    given, out = write_lines(tmp_path / "in.jsonl", *lines), tmp_path / "out.jsonl"
    grading()
    options = ("-p", "relu", "--device", "cpu", "--metadata-field", "meta.of", "--parent-field", "from")
    result = online("grade", given, "--out", out, *options)
    assert result.exit_code == 0, result.output
    found = {line["key"]: (line["metadata"], line["parent"]) for line in read_lines(out)}
    assert found == {"1": ({"sample": 0}, parents[0]), "2": ({"sample": 1}, parents[1]), "3": (None, None)}


@pytest.mark.parametrize(
    ("line", "message"),
    [({"code": "a", "meta": 3}, "the field 'meta' holds no object"), ({"code": "a", "of": 3}, "'of' holds no id")],
)
def test_metadata_and_parents_of_another_form_are_refused(tmp_path: Path, line: dict[str, Any], message: str) -> None:
    given = write_lines(tmp_path / "in.jsonl", {"code": "b"}, line)
    (refused,) = survey(given, Fields(metadata="meta", parent="of"), problem="relu").refused
    assert refused.where == "line 2"
    assert message in refused.message


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


def test_parquet_is_written_whole_and_goes_on_where_it_was_interrupted(
    online: Cli, tmp_path: Path, grading: Callable[[], None]
) -> None:
    grading()
    given, out = given_lines(tmp_path), tmp_path / "out.parquet"
    unfinished = tmp_path / "out.parquet.unfinished.jsonl"
    assert online("grade", given, "--out", out).exit_code == 1
    table = pyarrow.parquet.read_table(out)
    assert [str(table.schema.field(name).type) for name in ("key", "sample", "speedup")] == [
        "string",
        "int64",
        "double",
    ]
    rows = {row["key"]: row for row in table.to_pylist()}
    assert (rows["1"]["speedup"], rows["1"]["speedup_low"], rows["1"]["latency_ms"]) == (2.0, 1.9, 1.0)
    assert (rows["2"]["message"], rows["2"]["speedup"]) == ("=1+1, not 0", None)
    assert rows["2"]["feedback"].startswith("Verdict: wrong output")
    assert json.loads(rows["1"]["record"])["gradients"] == "match"
    assert not unfinished.exists()

    # As after a kill -9: what came since is beside it, the last line of that not whole.
    given_lines(tmp_path, 5)
    fourth = {**json.loads(rows["1"]["record"]), "key": "4", "sample": 3, "digest": digest_of(given, "4")}
    second = {**json.loads(rows["2"]["record"]), "message": "again"}
    unfinished.write_text(f'{json.dumps(fourth)}\n{json.dumps(second)}\n{{"key": "5", "dig')
    kb = tmp_path / "kb.json"
    result = online("grade", given, "--out", out, "--eval-results", kb, "--json")
    assert "4 of 5 are in" in result.stderr
    assert json.loads(result.stdout)["overall"]["correct"] == 4
    again = {row["key"]: row for row in pyarrow.parquet.read_table(out).to_pylist()}
    assert sorted(again) == ["1", "2", "3", "4", "5"]
    assert (again["1"], again["2"]["message"]) == (rows["1"], "again")
    assert [entry["sample_id"] for entry in json.loads(kb.read_text())["19"]] == [0, 1, 2, 3, 4]
    assert not unfinished.exists()


def digest_of(given: Path, key: str) -> str:
    (entry,) = (entry for entry in survey(given).entries if entry.key == key)
    return entry.digest


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("out.jsonl", b'{"my": "notes"}\n'),
        ("out.jsonl", b"[]\n"),
        ("out.jsonl", b"\xff\n"),
        ("out.jsonl", b"a line without an end"),
        ("out.csv", b"a,b\r\n1,2\r\n"),
        ("out.csv", b"no end"),
        ("out.parquet", b"PAR1, but not really"),
        ("out.parquet.unfinished.jsonl", b"mine"),
    ],
)
def test_a_file_of_somebody_elses_is_left_as_it_is(cli: Cli, tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    out = tmp_path / name.removesuffix(".unfinished.jsonl")
    result = cli("grade", given_lines(tmp_path), "--out", out, "--problems-dir", PROBLEMS, "--device", "cpu")
    assert result.exit_code == 2, result.output
    assert "does not hold results of this command, and was left as it is" in result.stderr
    assert (tmp_path / name).read_bytes() == content


def test_the_input_is_no_place_for_results_and_nobody_else_writes_meanwhile(cli: Cli, tmp_path: Path) -> None:
    given, out = given_lines(tmp_path), tmp_path / "out.jsonl"
    argv = ["--problems-dir", PROBLEMS, "--device", "cpu"]
    before = given.read_bytes()
    result = cli("grade", given, "--out", given, *argv)
    assert (result.exit_code, given.read_bytes()) == (2, before)
    assert "--out is the input itself" in result.stderr
    with ResultFile(out):
        result = cli("grade", given, "--out", out, *argv)
    assert result.exit_code == 2
    assert "another command is writing to" in result.stderr


def test_a_row_of_csv_that_was_cut_off_inside_of_a_text_is_graded_again(tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    message = 'first\n\u2028second,"third"\n\ud800'
    record = blank_record("relu", status="done", verdict="wrong_output", message=message)
    with ResultFile(out) as file:
        for key in "ab":
            file.add({"key": key, "digest": key, "sample": 0, **record})
    whole = out.read_bytes()
    assert whole.count(b"\r\n") == 3
    for cut in range(whole.rindex(b"\r\nb,") + 2, len(whole)):
        out.write_bytes(whole[:cut])
        with ResultFile(out) as file:
            assert (file.has("a", "a", "full", {}), file.has("b", "b", "full", {})) == (True, False)
            file.add({"key": "b", "digest": "b", "sample": 0, **record})
        assert out.read_bytes() == whole
    with ResultFile(out) as file:
        assert (file.has("a", "a", "full", {}), file.has("b", "b", "full", {})) == (True, True)


@pytest.mark.parametrize("suffix", [".jsonl", ".csv"])
def test_a_result_serves_its_own_tier_and_shallower_ones(tmp_path: Path, suffix: str) -> None:
    out = (tmp_path / "out").with_suffix(suffix)
    with ResultFile(out) as file:
        for tier in TIERS:
            record = blank_record("relu", status="done", verdict="passed", tier=tier)
            file.add({"key": tier, "digest": "d", "sample": 0, **record})
    with ResultFile(out) as file:
        known = {has: [asked for asked in TIERS if file.has(has, "d", asked, {})] for has in TIERS}
    assert known == {"check": ["check"], "quick": ["check", "quick"], "full": ["check", "quick", "full"]}


@pytest.mark.parametrize("suffix", [".jsonl", ".csv"])
def test_a_result_serves_the_rules_that_it_was_graded_under(tmp_path: Path, suffix: str) -> None:
    out, rules = (tmp_path / "out").with_suffix(suffix), RulesRecord(languages=["cuda", "triton"])
    with ResultFile(out) as file:
        for key, asked in (("with", rules), ("without", RulesRecord())):
            record = blank_record("relu", status="done", verdict="passed", rules=asked)
            file.add({"key": key, "digest": "d", "sample": 0, **record})
    with ResultFile(out) as file:
        known = [
            (key, asked) for key in ("with", "without") for asked in (rules, {}) if file.has(key, "d", "full", asked)
        ]
    assert known == [("with", rules), ("without", {})]


def test_runtimes_are_not_asked_of_checks(cli: Cli, tmp_path: Path) -> None:
    given = tmp_path / "in.jsonl"
    given.write_text('{"code": "class ModelNew: ...", "problem": "relu"}\n')
    argv = ["grade", given, "--out", tmp_path / "out.jsonl", "--local", "--problems-dir", PROBLEMS]
    result = cli(*argv, "--tier", "check", "--eval-results", tmp_path / "eval.json")
    assert (result.exit_code, "--tier check times nothing" in result.stderr) == (2, True)
    result = cli(*argv, "--tier", "deep")
    assert (result.exit_code, "tier must be one of check, quick, full" in result.stderr) == (2, True)


class Away(httpx.BaseTransport):
    """A service that, once a batch is handed in, cannot be reached every other time."""

    def __init__(self, inner: httpx.BaseTransport) -> None:
        self._inner = inner
        self.failures = 0
        self._next_fails = False

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if self._next_fails:
            self._next_fails = False
            self.failures += 1
            raise httpx.ConnectError("it is being started again")
        answer = self._inner.handle_request(request)
        self._next_fails = "/batches" in request.url.path
        return answer


def test_a_service_that_goes_away_is_waited_for(
    transport: AppTransport, cli: Cli, tmp_path: Path, grading: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    grading()
    away = Away(transport)
    monkeypatch.setattr(
        kerneljudge.cli.service, "connect", lambda _url: Client("http://testserver", transport=away, retries=0)
    )
    out = tmp_path / "out.jsonl"
    argv = ["grade", given_lines(tmp_path), "--out", out, "--url", "http://testserver"]
    result = cli(*argv, "--eval-results", tmp_path / "kb.json")
    assert result.exit_code == 1, result.output
    assert away.failures > 2
    assert "it is being started again; it is asked again for up to 60 min" in result.stderr
    assert sorted(line["key"] for line in read_lines(out)) == ["1", "2", "3"]
    monkeypatch.setattr(kerneljudge.grading.grade, "_PATIENCE_S", 0.0)
    out.unlink()
    result = cli(*argv)
    assert result.exit_code == 3
    assert "it is being started again" in result.stderr


def test_lines_that_are_none_are_named_and_the_rest_is_graded(
    online: Cli, tmp_path: Path, grading: Callable[[], None]
) -> None:
    grading()
    given, out = given_lines(tmp_path), tmp_path / "out.jsonl"
    with given.open("a") as stream:
        stream.write('{"problem": "rleu", "code": "x"}\n{"problem": "relu"')
    result = online("grade", given, "--out", out, "--json")
    assert result.exit_code == 2
    assert "line 4 is refused: no problem 'rleu'" in result.stderr
    assert "line 5 is refused: not JSON" in result.stderr
    assert "2 of 5 were refused, and are in no figure" in result.stderr
    found = json.loads(result.stdout)
    assert (found["refused"], found["overall"]["candidates"], found["overall"]["correct"]) == (2, 3, 2)
    assert len(read_lines(out)) == 3


def test_a_text_that_is_too_large_has_failed_and_is_not_refused(online: Cli, tmp_path: Path) -> None:
    answers = ["x" * 5_000_000, "\N{GRINNING FACE}" * 1_250_000, "\1" * 5_000_000]
    given = write_lines(tmp_path / "in.jsonl", *[{"problem": "relu", "response": answer} for answer in answers])
    result = online("grade", given, "--out", tmp_path / "out.jsonl")
    assert result.exit_code == 1, result.output
    assert [line["verdict"] for line in read_lines(tmp_path / "out.jsonl")] == ["invalid_source"] * 3


def test_a_line_that_the_service_refuses_is_status_2_and_sinks_no_other(
    online: Cli, tmp_path: Path, grading: Callable[[], None]
) -> None:
    grading()
    given = write_lines(
        tmp_path / "in.jsonl", {"problem": "relu", "code": SOURCE}, *[{"problem": "softmax", "code": SOURCE}] * 120
    )
    result = online("grade", given, "--out", tmp_path / "out.jsonl", "--size", "medium")
    lines = {line["key"]: line for line in read_lines(tmp_path / "out.jsonl")}
    assert lines["1"]["verdict"] == "passed"
    assert (result.exit_code, lines["2"]["status"]) == (2, "failed")
    assert "refused: size" in lines["2"]["message"]
    # A service names the first hundred; the others are no less refused.
    assert {line["status"] for key, line in lines.items() if key != "1"} == {"failed"}
    assert len(lines) == 121
    assert "refused: one of the 120 lines" in lines["121"]["message"]
    assert "120 of 121 were refused" in result.stderr


def test_what_could_not_be_graded_is_status_3_and_graded_again(
    online: Cli, tmp_path: Path, seeds: Seeds, grading: Callable[[], None]
) -> None:
    given, out = given_lines(tmp_path, 1), tmp_path / "out.jsonl"

    def lose() -> None:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with seeds.sessions() as session:
                items = page_of_submissions(session).items
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


def test_a_service_is_not_asked_where_it_is_to_be_graded_here(online: Cli, tmp_path: Path) -> None:
    result = online(
        "grade", write_lines(tmp_path / "in.jsonl", {"problem": "relu", "code": "x = ("}),
        "--out", tmp_path / "out.jsonl", "--local", "--problems-dir", PROBLEMS, "--device", "cpu",
    )  # fmt: skip
    assert (result.exit_code, "on this machine" in result.stderr) == (1, True)


def test_without_a_service_it_is_graded_here(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kerneljudge.cli.service, "connect", lambda _url: Client("http://127.0.0.1:9"))
    run = tmp_path / "run"
    run.mkdir()
    for sample, source in enumerate((HONEST, WRONG, HONEST, "x = (")):
        (run / f"level_1_problem_19_sample_{sample}_kernel.py").write_text(source)
    out, kb = tmp_path / "out.jsonl", tmp_path / "kb.json"
    argv = ["grade", run, "--out", out, "--device", "cpu", "--problems-dir", PROBLEMS, "--eval-results", kb]
    result = cli(*argv)
    assert result.exit_code == 1, result.output
    assert "on this machine" in result.stderr
    first = read_lines(out)[:4]
    assert [line["verdict"] for line in first] == ["passed", "wrong_output", "passed", "invalid_source"]
    # The same is graded once, unless the machine is too noisy to tell.
    unsettled = is_unsettled(first[0])
    assert (first[0]["timeline"] == first[2]["timeline"]) is not unsettled
    entries = json.loads(kb.read_text())["19"]
    assert [entry["compiled"] for entry in entries] == [True, True, True, False]
    last = {line["key"]: line for line in read_lines(out)}
    if last[first[0]["key"]]["speedup"] is None:
        assert (entries[0]["runtime"], entries[0]["runtime_stats"]) == (-1.0, {})
    else:
        stats = entries[0]["runtime_stats"]
        assert stats["min"] <= stats["mean"] == entries[0]["runtime"] <= stats["max"]
    kept = sum(not is_unsettled(line) for line in last.values())
    assert kept == 4 or f"{kept} of 4 are in" in cli(*argv).stderr


def test_what_is_unsettled_here_is_measured_once_more_at_the_end(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graded: list[str] = []

    def grade(_bench: object, problem: Problem, candidate: Candidate, _config: object) -> Outcome:
        graded.append(candidate.source)
        noisy = "noisy" in candidate.source and graded.count(candidate.source) == 1
        known = {"speedup": None, "speedup_status": "unsettled"} if noisy else {"speedup": 2.0}
        return Outcome(blank_record(problem.id, status="done", verdict="passed", **known), "")

    monkeypatch.setattr(Bench, "grade", grade)
    run = tmp_path / "run"
    run.mkdir()
    sources = [f"{HONEST}\n# noisy {number}" if number < 2 else f"{HONEST}\n# {number}" for number in range(3)]
    for number, source in enumerate(sources):
        (run / f"relu_sample_{number}.py").write_text(source)
    out = tmp_path / "out.jsonl"
    argv = ["grade", run, "--problem", "relu", "--out", out, "--device", "cpu", "--problems-dir", PROBLEMS]
    result = cli(*argv)
    assert result.exit_code == 0, result.output
    assert "too noisy for 2 of them" in result.stderr
    assert graded == [*sources, *sources[:2]]
    assert [line["speedup"] for line in read_lines(out)] == [None, None, 2.0, 2.0, 2.0]
    assert "3 of 3 are in" in cli(*argv).stderr


VAST = """\
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        {forward}


def get_inputs():
    return [torch.rand(2**23, 2**23)]


def get_init_inputs():
    return []
"""
MANIFEST = 'title = "T"\ndescription = "D"\n[sizes.full]\n'


def test_a_problem_that_cannot_be_judged_here_is_its_lines_outcome_alone(cli: Cli, tmp_path: Path) -> None:
    problems = tmp_path / "mine"
    shutil.copytree(PROBLEMS / "relu", problems / "relu")
    for name, forward in {"vast": "return torch.relu(x)", "broken": "raise ValueError('not today')"}.items():
        (problems / name).mkdir()
        (problems / name / "reference.py").write_text(VAST.format(forward=forward))
        (problems / name / "problem.toml").write_text(MANIFEST)
    names = ("vast", "relu", "vast", "broken", "relu")
    sources = (HONEST, HONEST, HONEST, HONEST, WRONG)
    given = write_lines(
        tmp_path / "in.jsonl",
        *[{"problem": name, "code": source} for name, source in zip(names, sources, strict=True)],
    )
    out = tmp_path / "out.jsonl"
    argv = ["grade", given, "--out", out, "--device", "cpu", "--problems-dir", problems, "--local", "--author", "me"]
    result = cli(*argv)
    assert result.exit_code == 3, result.output
    assert "1 of 2 passed" in result.stdout
    assert "3 were not graded" in result.stdout
    first = read_lines(out)
    lines = {line["key"]: line for line in first}
    assert [lines[key]["verdict"] or lines[key]["status"] for key in "12345"] == [
        "failed", "passed", "failed", "failed", "wrong_output",
    ]  # fmt: skip
    assert re.search(r"this size needs .* GiB .* and the device has .* GiB free", lines["1"]["message"])
    assert lines["1"]["message"] == lines["3"]["message"]
    assert "not today" in lines["4"]["message"]
    assert {(line["author"], line["device"], line["size"]) for key, line in lines.items() if key in "134"} == {
        ("me", "cpu", "full")
    }
    # What was graded stays; what was not, or not settled, is tried again.
    kept = 2 - is_unsettled(lines["2"])
    again = cli(*argv)
    assert (again.exit_code, f"{kept} of 5 are in" in again.stderr) == (3, True)
    tried = [line["key"] for line in read_lines(out)[len(first) :]]
    assert [key for key in tried if key != "2"] == ["1", "3", "4"]
    assert ("2" in tried) == is_unsettled(lines["2"])


class Refusing:
    """An engine on which each candidate meets what its source names, and that starts only if ``start`` is none."""

    starting: Exception | None = None

    def __init__(self, **_given: object) -> None:
        self.environment: dict[str, object] = {}

    def start(self) -> None:
        if self.starting is not None:
            raise self.starting

    def close(self) -> None:
        """Nothing is there to be closed."""

    def build(self, _problem: object, candidate: Candidate, _config: object, _callbacks: object) -> None:
        raise next(fault for fault in FAULTS if type(fault).__name__ in candidate.source)


FAULTS = (
    DeviceUnavailable("the device is gone"),
    DoesNotFit("needs 3 GiB, has 2 GiB"),
    InfrastructureFault("the judge died"),
    ProblemError("the reference fails"),
    ToolchainMissing("no nvcc"),
)


def test_whatever_is_not_the_candidates_fault_is_its_lines_outcome(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluator.engine, "Engine", Refusing)
    source = "class ModelNew: ...\n# {}\n"
    given = write_lines(
        tmp_path / "in.jsonl", *[{"problem": "relu", "code": source.format(type(fault).__name__)} for fault in FAULTS]
    )
    out = tmp_path / "out.jsonl"
    result = cli("grade", given, "--out", out, "--device", "cpu", "--problems-dir", PROBLEMS, "--local")
    assert result.exit_code == 3, result.output
    assert [line["message"] for line in read_lines(out)] == [str(fault) for fault in FAULTS]
    assert "5 were not graded" in result.stdout


@pytest.mark.parametrize("missing", [SandboxIncomplete("no namespaces"), ToolchainMissing("no C++ compiler")])
def test_a_machine_that_can_grade_nothing_ends_it(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: Exception
) -> None:
    monkeypatch.setattr(evaluator.engine, "Engine", Refusing)
    monkeypatch.setattr(Refusing, "starting", missing)
    out = tmp_path / "out.jsonl"
    argv = ["--problems-dir", PROBLEMS, "--local", "--device", "cpu"]
    result = cli("grade", given_lines(tmp_path), "--out", out, *argv)
    assert (result.exit_code, str(missing) in result.stderr) == (3, True)
    assert read_lines(out) == []


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--out", "x.txt"], ".jsonl, .csv or .parquet"),
        (["--out", "x.csv", "--eval-results", "kb.json"], "let --out end in .jsonl or .parquet"),
        (["--out", "x.jsonl", "--size", "huge"], "full, medium, smoke"),
        (["--out", "no/such/x.jsonl"], "cannot write"),
        (["--out", "x.jsonl", "--url", "http://127.0.0.1:9"], "cannot reach"),
        (["--out", "x.jsonl", "--device", "cuda:99"], "no device cuda:99"),
    ],
)
def test_what_cannot_be_says_why(
    cli: Cli, tmp_path: Path, argv: list[str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kerneljudge.cli.service, "connect", lambda _url: Client("http://127.0.0.1:9", retries=0))
    result = cli("grade", given_lines(tmp_path), "--problems-dir", PROBLEMS, *argv)
    assert result.exit_code == (3 if "url" in " ".join(argv) or "cuda" in " ".join(argv) else 2), result.output
    assert words in result.stderr


def test_problems_outside_of_kernelbench_have_no_eval_results(cli: Cli, tmp_path: Path) -> None:
    given = write_lines(tmp_path / "in.jsonl", {"problem": "softmax", "code": SOURCE})
    result = cli("grade", given, "--out", "x.jsonl", "--eval-results", "kb.json", "--problems-dir", PROBLEMS)
    assert result.exit_code == 2
    assert "softmax is none" in result.stderr
