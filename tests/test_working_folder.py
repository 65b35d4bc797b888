"""No process of ours runs a file that lies in the working folder, which may be a folder of candidates."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import mcp
import pytest
from mcp.client.stdio import StdioServerParameters, stdio_client

from evaluator.interpreter import DISTRIBUTION_ROOT, own_packages, python_command, python_environment
from tests.checkouts import reference, write_published
from tests.corpus import CANDIDATES
from tests.processes import wait_until
from tests.services import free_port

_ROOT = Path(__file__).parent.parent
_PROBLEMS = _ROOT / "reference_models"
_PLANTED = ("json", "select", "torch", "sitecustomize", "usercustomize", "socket", "numpy", "httpx", "ninja", "typing")
_PLANT = """
import os
with open({trace!r}, "a") as trace:
    trace.write(f"{name} in {{os.getpid()}}\\n")
raise ImportError("a candidate's {name} was imported")
"""
_DOES_NOT_COMPILE = """
from torch.utils.cpp_extension import load_inline

load_inline(name="broken", cpp_sources=["int f( {"], functions=["f"], no_implicit_headers=True)


class ModelNew:
    pass
"""
"""Without torch's headers, which take a minute to read."""
_RELU = ("-p", "relu", "--device", "cpu", "--size", "smoke", "--tier", "check")
"""What takes the least time: it is about what is imported."""
_WAYS = (["-m", "kerneljudge"], ["-m", "kerneljudge_server"], ["script"])


class WorkingFolder:
    """A folder of candidates; some of them have the names of modules."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "candidates"
        self._trace = folder / "imported.txt"
        self.path.mkdir()
        for name in _PLANTED:
            (self.path / f"{name}.py").write_text(_PLANT.format(trace=str(self._trace), name=name))
        self.candidate = self.path / "mine.py"
        self.candidate.write_text((CANDIDATES / "relu_honest_plain" / "candidate.py").read_text())
        # As where the project is not installed: the root is found by its name alone.
        self.environment = {
            **os.environ,
            "PYTHONPATH": str(_ROOT),
            "HOME": str(folder),
            "KERNELJUDGE_PROBLEMS_DIR": str(_PROBLEMS),
            "KERNELJUDGE_DATA_DIR": str(folder / "data"),
            "KERNELJUDGE_DEVICES": "cpu",
        }

    def run(self, *argv: str | Path, timeout_s: float = 200) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(word) for word in argv],
            cwd=self.path,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )

    def start(self, *argv: str, log: Path) -> subprocess.Popen[bytes]:
        with log.open("w") as output:
            return subprocess.Popen(argv, cwd=self.path, env=self.environment, stdout=output, stderr=output)

    @property
    def imported(self) -> str:
        """The planted modules that some process imported."""
        return self._trace.read_text() if self._trace.exists() else ""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[WorkingFolder]:
    """At the end nothing of it was imported by anybody."""
    folder = WorkingFolder(tmp_path)
    yield folder
    assert folder.imported == ""


def _kerneljudge(way: list[str]) -> list[str]:
    return [str(Path(sys.executable).with_name("kerneljudge"))] if way == ["script"] else [sys.executable, *way]


@pytest.mark.parametrize("way", _WAYS, ids=lambda way: way[-1])
def test_eval_is_deaf_to_the_working_folder(folder: WorkingFolder, way: list[str]) -> None:
    done = folder.run(*_kerneljudge(way), "eval", folder.candidate, *_RELU, "--json")
    assert json.loads(done.stdout)["verdict"] == "passed", done.stderr


def test_eval_of_a_cpp_extension_is_deaf_as_well(folder: WorkingFolder) -> None:
    """The recipes' processes work in folders that a candidate's files are written to."""
    folder.candidate.write_text(_DOES_NOT_COMPILE)
    argv = [sys.executable, "-m", "kerneljudge", "eval", folder.candidate, *_RELU, "--json"]
    assert json.loads(folder.run(*argv).stdout)["verdict"] == "compile_error"


def test_grade_is_deaf_to_the_working_folder(folder: WorkingFolder) -> None:
    given, graded = folder.path / "given.jsonl", folder.path / "graded.jsonl"
    given.write_text(json.dumps({"id": "a", "code": folder.candidate.read_text()}) + "\n")
    argv = [sys.executable, "-m", "kerneljudge", "grade", given, "--out", graded, *_RELU, "--local"]
    done = folder.run(*argv)
    assert json.loads(graded.read_text().splitlines()[0])["verdict"] == "passed", done.stderr


def test_serve_and_all_that_it_starts_are_deaf_to_the_working_folder(folder: WorkingFolder, tmp_path: Path) -> None:
    said, port = tmp_path / "said", free_port()
    process = folder.start(sys.executable, "-m", "kerneljudge", "serve", "--port", str(port), log=said)
    try:
        wait_until(lambda: "is ready at" in said.read_text() or process.poll() is not None, "the service to be ready")
        submit = [sys.executable, "-m", "kerneljudge", "submit", folder.candidate, *_RELU]
        done = folder.run(*submit, "--url", f"http://127.0.0.1:{port}", "--watch", "--json")
        assert json.loads(done.stdout)["verdict"] == "passed", (done.stderr, said.read_text())
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


@pytest.mark.parametrize("queue", [["build"], ["evaluate.cpu", "--device", "cpu"], ["evaluate.cpu", "--device", "all"]])
def test_a_worker_is_deaf_to_the_working_folder(folder: WorkingFolder, tmp_path: Path, queue: list[str]) -> None:
    said = tmp_path / "said"
    process = folder.start(sys.executable, "-m", "worker", "--queue", *queue, log=said)
    try:
        wait_until(lambda: "takes from" in said.read_text() or process.poll() is not None, "the worker to be ready")
        assert process.poll() is None, said.read_text()
    finally:
        process.kill()  # it is about what is imported, not about an orderly end within its start
        process.wait(60)


def test_importing_problems_is_deaf_to_the_working_folder(folder: WorkingFolder, tmp_path: Path) -> None:
    write_published(tmp_path, 1, "1_Tanh", reference("return torch.tanh(x)"))
    argv = [
        sys.executable,
        "-m",
        "kerneljudge",
        "problems",
        "import",
        tmp_path / "KernelBench",
        "--into",
        tmp_path / "new",
    ]
    done = folder.run(*argv, "--json")
    assert json.loads(done.stdout)["admitted"] == 1, done.stderr


def test_mcp_is_deaf_to_the_working_folder(folder: WorkingFolder) -> None:
    parameters = StdioServerParameters(
        command=sys.executable, args=["-m", "kerneljudge", "mcp"], cwd=folder.path, env=folder.environment
    )

    async def tools() -> list[str]:
        async with mcp.Client(stdio_client(parameters)) as agent:
            return [tool.name for tool in (await agent.list_tools()).tools]

    assert "evaluate" in asyncio.run(tools())


@pytest.mark.parametrize("module", ["storage.migrate", "worker.webhook_sender", "api"])
def test_the_other_services_are_deaf_to_the_working_folder(folder: WorkingFolder, tmp_path: Path, module: str) -> None:
    folder.environment["KERNELJUDGE_PORT"] = str(free_port())
    said = tmp_path / "said"
    process = folder.start(sys.executable, "-m", module, log=said)
    ready = {"storage.migrate": "", "worker.webhook_sender": "telling of the ends", "api": "startup complete"}[module]
    try:
        wait_until(lambda: process.poll() is not None or bool(ready and ready in said.read_text()), f"{module}")
        assert process.poll() in (None, 0), said.read_text()
    finally:
        process.terminate()
        process.wait(60)


def test_a_named_path_is_kept_and_the_working_folder_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named, working = tmp_path / "named", tmp_path / "working"
    named.mkdir()
    working.mkdir()
    (named / "known_here.py").write_text("value = 1\n")
    (working / "json.py").write_text("raise SystemExit('the working folder was searched')\n")
    monkeypatch.setattr(sys, "path", ["", ".", str(working), str(named)])
    monkeypatch.chdir(working)
    environment = python_environment(os.environ)
    assert environment["PYTHONPATH"].split(os.pathsep) == [str(DISTRIBUTION_ROOT), str(named)]
    code = "import json, known_here, evaluator.protocol.messages; print(known_here.value)"
    done = subprocess.run(python_command("-c", code), env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"


def test_a_checkout_that_somebody_works_in_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(DISTRIBUTION_ROOT)
    monkeypatch.setattr(sys, "path", [str(DISTRIBUTION_ROOT), *sys.path])
    assert python_environment({})["PYTHONPATH"].split(os.pathsep)[0] == str(DISTRIBUTION_ROOT)


def test_python_is_started_by_one_function_alone() -> None:
    """``sys.executable`` may name a folder; whatever starts it goes through ``evaluator.interpreter``."""
    starts = re.compile(r"sys\.executable(?!\)\.parent)|\[[\"']python3?[\"']")
    found = {
        f"{path.relative_to(_ROOT)}:{number}"
        for package in (*own_packages(), _ROOT / "docker")
        for path in package.rglob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if starts.search(line)
    }
    assert {place.partition(":")[0] for place in found} == {"evaluator/interpreter.py"}, found


def test_images_and_the_makefile_keep_the_working_folder_off_the_path() -> None:
    assert "export PYTHONSAFEPATH := 1" in (_ROOT / "Makefile").read_text()
    stages = re.findall(r"^ENV PYTHONUNBUFFERED=1 (\S+)", (_ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert stages == ["PYTHONSAFEPATH=1"] * 2
