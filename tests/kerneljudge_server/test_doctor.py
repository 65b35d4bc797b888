"""``kerneljudge doctor`` and ``--require-sandbox`` on this machine, and on one that lacks something."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from evaluator.devices.discovery import available_devices
from evaluator.devices.health import Health
from evaluator.selftest import SelfTest
from kerneljudge_server.doctor import Device, Examination
from tests.kerneljudge.conftest import CANDIDATES, PROBLEMS, ROOT, Cli
from tests.machines import without_libseccomp


def test_a_machine_that_has_everything_is_status_0_with_what_it_has(cli: Cli, tmp_path: Path) -> None:
    result = cli("doctor", "--device", "cpu", "--json")
    assert result.exit_code == 0, result.stdout
    record = json.loads(result.stdout)
    layers = {layer["name"]: layer for layer in record["layers"]}
    assert {"user", "syscalls", "cgroup"} <= set(layers)
    assert all(layer["there"] for layer in layers.values() if not layer["optional"])
    assert (record["sandbox_complete"], record["lacks"]) == (True, [])
    assert record["conclusion"] == "candidates can be evaluated here in a complete sandbox"
    tools = {tool["name"]: tool for tool in record["tools"]}
    assert set(tools) == {"C++ compiler", "nvcc", "ninja", "libseccomp"}
    assert all(tool["found"] for tool in tools.values() if tool["needed"])
    assert not tools["nvcc"]["needed"]
    (device,) = record["devices"]
    assert (device["name"], device["error"]) == ("cpu", None)
    assert record["torch"] == device["environment"]["torch"]
    assert record["processors"] >= 1
    assert record["memory_bytes"] > 2**30
    assert list(tmp_path.iterdir()) == []


def test_every_device_is_looked_at_and_the_last_line_concludes(cli: Cli) -> None:
    result = cli("doctor")
    assert result.exit_code == 0, result.stdout
    lines = result.stdout.splitlines()
    assert lines[-1] == "candidates can be evaluated here in a complete sandbox"
    for name in (*available_devices(), "network", "libseccomp", "processors"):
        assert [line for line in lines if line.startswith(f"  {name} ")], name


def test_a_device_that_is_not_there_is_status_3_and_the_sandbox_is_tried_without_it(cli: Cli) -> None:
    result = cli("doctor", "--device", "cuda:99", "--json")
    assert result.exit_code == 3
    record = json.loads(result.stdout)
    assert "no device cuda:99" in record["lacks"][-1]
    assert record["sandbox_complete"]
    assert record["conclusion"] == "candidates cannot be evaluated here"


def test_a_name_that_is_no_devices_is_bad_usage(cli: Cli) -> None:
    result = cli("doctor", "--device", "tpu", "--json")
    assert result.exit_code == 2
    assert "not 'tpu'" in json.loads(result.stdout)["error"]


def test_without_a_compiler_it_is_status_3_and_says_what_to_install(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    result = cli("doctor", "--device", "cpu")
    assert result.exit_code == 3
    assert "needed: C++ compiler is missing: install g++ (or set CXX)" in result.stdout
    assert "could not be tried" in result.stdout
    assert result.stdout.splitlines()[-1] == "candidates cannot be evaluated here"


def test_without_a_layer_it_is_status_3_and_says_what_that_means(tmp_path: Path) -> None:
    result = on_a_machine_without_libseccomp(tmp_path, "doctor", "--device", "cpu")
    assert result.returncode == 3, result.stderr
    lines = result.stdout.splitlines()
    assert "  syscalls      missing: a candidate may use every system call of the kernel" in result.stdout
    assert "needed: libseccomp is missing: install libseccomp2 (libseccomp on Fedora)" in lines
    assert lines[-1] == "candidates can be evaluated here, but not in a complete sandbox"


@pytest.mark.parametrize("by_variable", [False, True])
def test_an_evaluation_that_requires_the_sandbox_is_refused_without_it(tmp_path: Path, by_variable: bool) -> None:
    candidate = CANDIDATES / "relu_honest_plain" / "candidate.py"
    argv = ["eval", candidate, "-p", "relu", "--device", "cpu", "--problems-dir", PROBLEMS, "--json"]
    if by_variable:
        result = on_a_machine_without_libseccomp(tmp_path, *argv, KERNELJUDGE_REQUIRE_SANDBOX="true")
    else:
        result = on_a_machine_without_libseccomp(tmp_path, *argv, "--require-sandbox")
    assert result.returncode == 3, result.stderr
    record = json.loads(result.stdout)
    assert (record["status"], record["verdict"]) == ("failed", None)
    assert "the kernel refuses: syscalls (a candidate may use every system call" in record["message"]


def on_a_machine_without_libseccomp(folder: Path, *argv: object, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **without_libseccomp(folder / "site"),
        "KERNELJUDGE_DATA_DIR": str(folder / "data"),
        **variables,
    }
    command = [sys.executable, "-m", "kerneljudge", *(str(part) for part in argv)]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)


def test_the_recipes_for_builds_are_shown_with_what_stands_against_them(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELJUDGE_PREPARED_DIR", str(tmp_path / "prepared"))
    lines = cli("doctor", "--device", "cpu").stdout.splitlines()
    assert [line for line in lines if line.startswith("  precompiled") and "not prepared" in line]
    assert [line for line in lines if line.split() == ["plain", "available"]]


def test_preparing_without_a_compiler_says_so_and_is_status_1(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELJUDGE_PREPARED_DIR", str(tmp_path / "prepared"))
    monkeypatch.setattr("evaluator.builder.recipes.headers.compiler_versions", lambda: {"compiler": None, "nvcc": None})
    result = cli("prepare", "precompiled", "--json")
    assert result.exit_code == 1
    record = json.loads(result.stdout)
    assert (record["root"], record["complete"]) == (str(tmp_path / "prepared"), False)
    (preparation,) = record["preparations"]
    assert preparation["obstacle"] == "this machine lacks a C++ compiler"
    assert not (tmp_path / "prepared").exists()


def test_preparing_for_a_recipe_that_there_is_not_is_bad_usage(cli: Cli) -> None:
    result = cli("prepare", "fastest")
    assert result.exit_code == 2
    assert "split, precompiled" in result.stderr


def test_the_self_test_can_be_asked_for_by_hand(cli: Cli) -> None:
    record = json.loads(cli("doctor", "--device", "cpu", "--self-test", "--json").stdout)
    (device,) = record["devices"]
    assert device["self_test"]["failure"] == ""
    assert device["health"] == {"reasons": [], "events": [], "unchecked": []}
    assert record["lacks"] == []


def test_a_device_that_does_not_pass_is_named_with_what_came_out() -> None:
    unfit = Device(
        "cuda:0", {"device_name": "a GPU"}, health=Health(("it is 95 °C hot",)), self_test=SelfTest("no", 1.0)
    )
    examination = Examination((unfit,), (), (), (), None, None, 1, 2**30)
    assert examination.lacks == (
        "cuda:0 is not fit to be measured on: it is 95 °C hot",
        "cuda:0 does not pass the self-test: no",
    )
    assert examination.conclusion == "candidates cannot be evaluated here"
