"""The commands that need no service: evaluations of real candidates, and problems."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evaluator.devices.discovery import has_nvcc
from evaluator.errors import InfrastructureFault
from kerneljudge.records import SubmissionRecord
from kerneljudge_server import local
from tests.kerneljudge.conftest import CANDIDATES, KNOWN, PROBLEMS, Cli

ABSENT = "cuda:99"


def test_a_good_candidate_is_status_0_with_its_figures(cli: Cli) -> None:
    argv = ["eval", CANDIDATES / "relu_honest_plain" / "candidate.py", "--problem", "relu", "--device", "cpu", "--json"]
    result = cli(*argv, "--problems-dir", PROBLEMS)
    assert result.exit_code == 0, result.stderr
    record = json.loads(result.stdout)
    assert set(record) == set(SubmissionRecord.__annotations__)
    assert (record["status"], record["verdict"], record["gradients"]) == ("done", "passed", "match")
    assert (record["device"], record["size"]) == ("cpu", "smoke")
    if record["speedup_status"] == "unsettled":  # on a machine that is too noisy for a figure there is none
        assert (record["speedup"], record["speedup_interval"]) == (None, None)
    else:
        assert record["speedup_status"] == "measured"
        assert record["speedup_interval"]["low"] <= record["speedup"] <= record["speedup_interval"]["high"]
    assert record["environment"]["torch"]
    assert [(flag["kind"], flag["line"]) for flag in record["flags"]] == [("library_only", 5)]
    # The track that noise has left without a figure is named first.
    assert record["feedback"].startswith("Verdict: passed (relu, cpu, size smoke, float32).\nSpeedup of ")
    assert "\nSpeedup of the forward" in record["feedback"]
    assert all(record["timeline"].values())
    assert "verifying" in result.stderr


def test_a_candidate_that_breaks_a_rule_of_the_command_is_rejected(cli: Cli) -> None:
    argv = ["eval", CANDIDATES / "relu_honest_plain" / "candidate.py", "--problem", "relu", "--device", "cpu"]
    result = cli(*argv, "--rules", "forbidden_operators=relu+matmul", "--problems-dir", PROBLEMS, "--json")
    assert result.exit_code == 1, result.stderr
    record = json.loads(result.stdout)
    assert (record["verdict"], record["rules"]) == ("rejected", {"forbidden_operators": ["matmul", "relu"]})
    (broken,) = record["details"]["broken_rules"]
    assert (broken["rule"], broken["file"]) == ("forbidden_operators", "candidate.py")
    assert f"candidate.py, line {broken['line']}: " in record["message"]
    refused = cli(*argv, "--rules", "forbidden_operators=rely", "--problems-dir", PROBLEMS)
    assert (refused.exit_code, "forbidden_operators may name" in refused.stderr) == (2, True)


def test_a_check_has_a_verdict_and_no_figures(cli: Cli) -> None:
    argv = ["eval", CANDIDATES / "relu_honest_plain" / "candidate.py", "--problem", "relu", "--device", "cpu"]
    result = cli(*argv, "--tier", "check", "--problems-dir", PROBLEMS, "--json")
    assert result.exit_code == 0, result.stderr
    record = json.loads(result.stdout)
    assert (record["verdict"], record["gradients"], record["tier"]) == ("passed", "match", "check")
    assert (record["speedup"], record["speedup_status"], record["latency_ms"]) == (None, None, None)
    assert "sampling" not in record["stage_s"]
    compared = cli(*argv, "--tier", "check", "--compiled", "--problems-dir", PROBLEMS)
    assert (compared.exit_code, "--compiled compares figures" in compared.stderr) == (2, True)
    refused = cli(*argv, "--tier", "deep", "--problems-dir", PROBLEMS)
    assert refused.exit_code == 2
    assert "tier must be one of check, quick, full, not 'deep'" in refused.stderr


def test_a_wrong_candidate_is_status_1_and_told_where(cli: Cli) -> None:
    answer = "```python\n" + (CANDIDATES / "relu_abs" / "candidate.py").read_text() + "```\n"
    result = cli("eval", "-", "--response", "-p", "relu", "--device", "cpu", "--problems-dir", PROBLEMS, stdin=answer)
    assert result.exit_code == 1, result.stderr
    assert "wrong output  relu (cpu, smoke, float32)" in result.stdout
    assert "advisory: library only, line 5: no kernel of its own" in result.stdout
    assert "feedback, as a language model is given it:\n    Verdict: wrong output while comparing" in result.stdout
    assert "expected" in result.stdout


def test_what_is_no_candidate_is_status_1_without_any_machinery(cli: Cli) -> None:
    begin = time.monotonic()
    result = cli("eval", "-", "-p", "relu", "--problems-dir", PROBLEMS, "--json", stdin="x = (\n")
    assert result.exit_code == 1
    record = json.loads(result.stdout)
    assert (record["verdict"], record["problem_version"] is not None) == ("invalid_source", True)
    assert result.stderr == ""
    assert time.monotonic() - begin < 2


def test_without_the_device_a_good_candidate_cannot_be_judged(cli: Cli) -> None:
    candidate = CANDIDATES / "relu_honest_plain" / "candidate.py"
    argv = ["eval", candidate, "-p", "relu", "--device", ABSENT, "--problems-dir", PROBLEMS, "--json"]
    result = cli(*argv)
    assert result.exit_code == 3
    record = json.loads(result.stdout)
    assert (record["status"], record["verdict"], record["size"]) == ("failed", None, "full")
    assert f"no device {ABSENT}" in record["message"]
    assert "kerneljudge submit" in record["message"]


def test_without_the_device_compile_errors_are_reported_all_the_same(cli: Cli) -> None:
    candidate = CANDIDATES / "relu_compile_error_cpp" / "candidate.py"
    result = cli("eval", candidate, "-p", "relu", "--device", ABSENT, "--problems-dir", PROBLEMS)
    if has_nvcc():
        assert result.exit_code == 1, result.stderr
        assert "compile error" in result.stdout
    else:
        assert result.exit_code == 3
        assert "no nvcc" in result.stderr


def test_a_broken_machine_is_status_3(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    candidate = CANDIDATES / "relu_honest_plain" / "candidate.py"
    result = cli("eval", candidate, "-p", "relu", "--device", "cpu", "--problems-dir", PROBLEMS)
    assert result.exit_code == 3
    assert "no C++ compiler" in result.stderr


@pytest.mark.parametrize("fault", [InfrastructureFault("the judge died"), ZeroDivisionError("a bug")])
def test_a_fault_of_ours_never_looks_like_a_verdict(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    def broken(*_args: object, **_options: object) -> None:
        raise fault

    monkeypatch.setattr(local, "evaluate", broken)
    result = cli("eval", "-", "-p", "relu", "--problems-dir", PROBLEMS, "--json", stdin="class ModelNew: ...")
    assert result.exit_code == 3
    assert str(fault) in json.loads(result.stdout)["message"]
    assert str(fault) in result.stderr


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["-", "-p", "rleu", "--problems-dir", PROBLEMS], KNOWN),
        (["-", "-p", "relu", "--problems-dir", "none"], "no folder of problems at none"),
        (["-", "-p", "relu", "--problems-dir", PROBLEMS, "--size", "huge"], "it has full, medium, smoke"),
        (["-", "-p", "relu", "--problems-dir", PROBLEMS, "--device", "tpu"], "not 'tpu'"),
        (["-", "-p", "relu", "--problems-dir", PROBLEMS, "--precision", "int4"], "not 'int4'"),
        (["-", "-p", "relu", "--problems-dir", PROBLEMS, "--baseline", "fastest"], "not 'fastest'"),
        (["-", "-p", "relu", "--problems-dir", PROBLEMS, "--baseline", "tf32"], "relu has no baseline tf32"),
        (["none.py", "-p", "relu", "--problems-dir", PROBLEMS], "cannot read none.py"),
    ],
)
def test_bad_usage_is_status_2_and_says_why(cli: Cli, argv: list[object], words: str) -> None:
    result = cli("eval", *argv, "--json", stdin="class ModelNew: ...")
    assert result.exit_code == 2
    assert words in result.stderr
    record = json.loads(result.stdout)
    assert set(record) == set(SubmissionRecord.__annotations__)
    assert record["status"] == "failed"
    assert words in record["message"]


def test_problems_are_listed_and_shown_without_a_service(cli: Cli) -> None:
    listed = cli("problems", "list", "--problems-dir", PROBLEMS)
    assert listed.exit_code == 0
    assert "level 1 problem 19" in listed.stdout
    shown = cli("problems", "show", "relu", "--problems-dir", PROBLEMS)
    for words in ("batch_size=4096", "return torch.relu(x)", "atol 0.0001"):
        assert words in shown.stdout
    record = json.loads(cli("problems", "show", "relu", "--problems-dir", PROBLEMS, "--json").stdout)
    assert record["sizes"]["smoke"] == {"batch_size": 64, "dim": 16384}
    assert cli("problems", "show", "rleu", "--problems-dir", PROBLEMS).exit_code == 2


def test_problems_are_found_from_any_folder(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert "linear_relu_divide" in cli("problems", "list").stdout
    (tmp_path / "reference_models").mkdir()
    assert "no problem in reference_models" in cli("problems", "list").stderr
    monkeypatch.setenv("KERNELJUDGE_PROBLEMS_DIR", str(PROBLEMS))
    assert "linear_relu_divide" in cli("problems", "list").stdout


def test_the_command_is_installed_and_explains_itself() -> None:
    command = Path(sys.executable).with_name("kerneljudge")
    for argv in (["--help"], ["eval", "--help"], ["submit", "-h"], ["problems", "--help"], ["serve", "--help"]):
        result = subprocess.run([command, *argv], capture_output=True, text=True, timeout=60)
        assert (result.returncode, result.stderr) == (0, "")
        assert "Usage" in result.stdout


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_evaluation_that_is_stopped_is_no_verdict_and_leaves_nothing(
    tmp_path: Path, number: signal.Signals, status: int
) -> None:
    candidate = CANDIDATES / "relu_honest_plain" / "candidate.py"
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    environment = {**os.environ, "TMPDIR": str(scratch)}
    argv = [sys.executable, "-m", "kerneljudge", "eval", candidate, "-p", "relu", "--problems-dir", PROBLEMS]
    # What a shell has started in the background ignores SIGINT, and so would this.
    heeded = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731 - one expression
    process = subprocess.Popen(
        argv,
        cwd=tmp_path,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heeded,  # noqa: PLW1509 - no thread of ours holds a lock
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "verifying" in line or "sampling" in line:
            break
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == status
    assert list(scratch.iterdir()) == []
