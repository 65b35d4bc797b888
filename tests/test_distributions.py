"""The two distributions, built and installed in fresh environments: what they leave there, and what works with them."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email import message_from_string
from email.message import Message
from pathlib import Path

import pytest

from kerneljudge import __version__
from tests.corpus import CANDIDATES
from tests.services import free_port

_ROOT = Path(__file__).parent.parent
_BUILT_FROM = (
    "api", "evaluator", "kerneljudge", "kerneljudge_server", "reference_models", "runtime", "storage", "worker",
    "LICENSE", "MANIFEST.in", "README.md", "pyproject.toml", "requirements.in", "setup.py",
)  # fmt: skip
_IMPORTS_WITHIN_S = 0.3
_SEARCH = """
import os

import torch

for folder in {hidden!r}:
    found = [name for _, _, names in os.walk(folder) for name in names]
    assert not found, f"{{folder}} has {{found[:3]}}"
assert os.listdir({shown!r})


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
"""


@dataclass(frozen=True)
class Environment:
    """A virtual environment, and an empty folder to work in."""

    folder: Path
    working: Path

    @property
    def site_packages(self) -> Path:
        return Path(sysconfig.get_path("purelib", "venv", {"base": str(self.folder)}))

    @property
    def names(self) -> set[str]:
        """The names that can be imported."""
        entries = {path for path in self.site_packages.iterdir() if path.suffix not in (".dist-info", ".pth")}
        return {path.stem for path in entries} - {"__pycache__"}

    def run(self, program: str, *argv: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        command = [str(self.folder / "bin" / program), *map(str, argv)]
        return subprocess.run(
            command,
            cwd=self.working,
            env=_variables("HOME", "LANG", "PATH", "KERNELJUDGE_PREPARED_DIR") | variables,
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )


def _variables(*names: str) -> dict[str, str]:
    return {name: os.environ[name] for name in names if name in os.environ}


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what both distributions are built from."""
    folder = tmp_path_factory.mktemp("sources")
    for name in _BUILT_FROM:
        if (_ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", ".build")
            shutil.copytree(_ROOT / name, folder / name, symlinks=False, ignore=ignored)
        else:
            shutil.copy(_ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def wheels(sources: Path) -> Mapping[str, Path]:
    """The wheels by the name of their distribution, as ``make wheels`` builds them."""
    return _built(sources, "./kerneljudge", ".")


def _built(folder: Path, *projects: str | Path) -> Mapping[str, Path]:
    argv = ("--no-deps", "--no-build-isolation", "--wheel-dir", "dist", *projects)
    _pip(Path(sys.executable), "wheel", *argv, cwd=folder)
    return {path.name.partition("-")[0]: path for path in (folder / "dist").glob("*.whl")}


def _pip(python: Path, *argv: str | Path, cwd: Path) -> None:
    command = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet", *map(str, argv)]
    # Without this checkout on the path of modules, where pip would find both distributions.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _environment(folder: Path) -> Environment:
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    (folder / "empty").mkdir()
    return Environment(folder / "venv", folder / "empty")


@pytest.fixture(scope="module")
def client(wheels: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with the client and what pip installs for it."""
    found = _environment(tmp_path_factory.mktemp("client"))
    _pip(found.folder / "bin" / "python", "install", wheels["kerneljudge"], cwd=found.working)
    return found


@pytest.fixture(scope="module")
def server(wheels: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with both wheels. It borrows torch and the other dependencies from this one."""
    found = _environment(tmp_path_factory.mktemp("server"))
    _pip(found.folder / "bin" / "python", "install", "--no-deps", *wheels.values(), cwd=found.working)
    (found.site_packages / "borrowed.pth").write_text(f"{Path(pytest.__file__).parent.parent}\n")
    return found


def _metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_string(archive.read(name).decode())


def _required(wheel: Path) -> set[str]:
    return {each for each in _metadata(wheel).get_all("Requires-Dist", []) if "extra ==" not in each}


def test_both_have_the_one_version_and_the_server_asks_for_the_client_of_its_own(wheels: Mapping[str, Path]) -> None:
    assert {_metadata(wheel)["Version"] for wheel in wheels.values()} == {__version__}
    assert f"kerneljudge=={__version__}" in _required(wheels["kerneljudge_server"])
    assert any(each.startswith("torch>=") for each in _required(wheels["kerneljudge_server"]))


def test_the_client_needs_python_3_10_and_four_libraries(wheels: Mapping[str, Path]) -> None:
    wheel = wheels["kerneljudge"]
    assert _metadata(wheel)["Requires-Python"] == ">=3.10"
    always = {each.partition(">=")[0] for each in _required(wheel) if "python_version" not in each}
    assert always == {"httpx", "rich", "typer", "typing-extensions"}
    assert [each.partition(">=")[0] for each in _required(wheel) if "python_version" in each] == ["tomli"]


def _held(wheels: Mapping[str, Path]) -> dict[str, set[str]]:
    """The files of each wheel, but for those about it."""
    held: dict[str, set[str]] = {}
    for distribution, wheel in wheels.items():
        with zipfile.ZipFile(wheel) as archive:
            held[distribution] = {name for name in archive.namelist() if ".dist-info/" not in name}
    return held


def test_each_wheel_brings_one_name_and_all_modules(wheels: Mapping[str, Path]) -> None:
    held = _held(wheels)
    for distribution, names in held.items():
        assert {name.partition("/")[0] for name in names} == {distribution}
    assert set(_files("kerneljudge")) <= held["kerneljudge"]
    assert set(_files("kerneljudge_server")) <= held["kerneljudge_server"]
    packages = {f"kerneljudge_server/_packages/{name}" for folder in _SERVICE for name in _files(folder)}
    assert packages == {name for name in held["kerneljudge_server"] if "/_packages/" in name}


def test_archives_of_the_sources_build_the_same_wheels(
    sources: Path, wheels: Mapping[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = f"from setuptools.build_meta import build_sdist; build_sdist({str(tmp_path)!r})"
    for project in (sources, sources / "kerneljudge"):
        subprocess.run([sys.executable, "-c", code], cwd=project, capture_output=True, check=True)
    archives = list(tmp_path.glob("*.tar.gz"))
    assert len(archives) == 2
    # pip unpacks an archive there. Outside of that, a module of another build would get into the wheel.
    unpacked = tmp_path / "unpacked"
    unpacked.mkdir()
    monkeypatch.setenv("TMPDIR", str(unpacked))
    assert _held(_built(tmp_path, *archives)) == _held(wheels)
    assert list(unpacked.iterdir()) == []


_SERVICE = ("api", "evaluator", "reference_models", "runtime", "storage", "worker")


def _files(folder: str) -> Iterator[str]:
    """The files of a package that an installation needs: none about its building, and no cache."""
    about = ("pyproject.toml", "README.md", "LICENSE")
    for path in (_ROOT / folder).rglob("*"):
        name = path.relative_to(_ROOT)
        cached = any(part.startswith(".") or part == "__pycache__" or part.endswith(".egg-info") for part in name.parts)
        if path.is_file() and not cached and path.name not in about:
            yield str(name)


def test_every_module_of_the_client_is_python_3_10() -> None:
    """Its syntax. mypy checks the names that it imports (``make check``)."""
    modules = sorted((_ROOT / "kerneljudge").rglob("*.py"))
    assert len(modules) > 40
    for path in modules:
        ast.parse(path.read_text(encoding="utf-8"), str(path), feature_version=(3, 10))


def test_a_trainer_gets_one_name_of_ours_and_no_torch(client: Environment) -> None:
    ours = {"kerneljudge", "kerneljudge_server", "api", "worker", "storage", "runtime", "evaluator", "reference_models"}
    assert client.names & ours == {"kerneljudge"}
    assert client.names.isdisjoint({"torch", "fastapi", "celery", "sqlalchemy", "psycopg", "numpy"})
    assert (client.site_packages / "kerneljudge" / "py.typed").is_file()


def test_the_client_is_imported_fast(client: Environment) -> None:
    code = "import time; start = time.perf_counter(); import kerneljudge{names}; print(time.perf_counter() - start)"
    for names in ("", "; kerneljudge.Client, kerneljudge.KernelRewards"):
        # The first run compiles modules, and other tests may keep the processors busy.
        taken = [float(client.run("python", "-c", code.format(names=names)).stdout) for _ in range(5)]
        assert min(taken) < _IMPORTS_WITHIN_S, (names, taken)


def test_the_client_has_the_whole_command_line(client: Environment) -> None:
    shown = client.run("kerneljudge", "--help")
    assert shown.returncode == 0, shown.stderr
    for command in ("serve", "eval", "submit", "grade", "leaderboard", "problems"):
        assert command in shown.stdout
        assert client.run("kerneljudge", command, "--help").returncode == 0


def test_the_client_says_its_version(client: Environment) -> None:
    assert client.run("kerneljudge", "--version").stdout == f"kerneljudge {__version__}\n"


@pytest.mark.parametrize(
    ("words", "completed"), [("kerneljudge leader", {"leaderboard"}), ("kerneljudge batches comp", {"compare"})]
)
def test_a_shell_completes_commands(client: Environment, words: str, completed: set[str]) -> None:
    asked = {"_KERNELJUDGE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    assert set(client.run("kerneljudge", **asked).stdout.split()) == completed


def test_a_service_that_is_not_there_is_our_fault_in_one_line(client: Environment) -> None:
    (client.working / "mine.py").write_text("class ModelNew: pass\n")
    url = f"http://127.0.0.1:{free_port()}"
    done = client.run("kerneljudge", "submit", "mine.py", "--problem", "relu", KERNELJUDGE_URL=url)
    assert (done.returncode, done.stdout) == (3, ""), done.stderr
    assert done.stderr.startswith(f"kerneljudge: cannot reach {url}: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "argv",
    [
        ["serve"],
        ["eval", "mine.py", "--problem", "relu"],
        ["diagnose", "mine.py", "--problem", "relu"],
        ["doctor"],
        ["prepare"],
        ["grade", "in.jsonl", "--out", "out.jsonl", "--local"],
        ["problems", "list"],
        ["problems", "show", "relu"],
        ["problems", "check"],
        ["problems", "import", "KernelBench"],
        ["keys", "list"],
        ["keys", "create", "me"],
        ["keys", "revoke", "abc"],
    ],
    ids=" ".join,
)
def test_a_command_of_the_server_says_who_has_it(client: Environment, argv: list[str]) -> None:
    done = client.run("kerneljudge", *argv)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert "needs kerneljudge-server, which is not installed: pip install kerneljudge-server" in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_server_leaves_one_more_name(server: Environment, client: Environment) -> None:
    assert server.names - client.names == {"kerneljudge_server"}


def test_the_server_has_its_problems_in_any_folder(server: Environment) -> None:
    done = server.run("kerneljudge", "problems", "list", "--json")
    assert done.returncode == 0, done.stderr
    listed = {record["id"] for record in json.loads(done.stdout)["items"]}
    assert listed == {path.parent.name for path in (_ROOT / "reference_models").glob("*/problem.toml")}


def test_the_server_evaluates_in_any_folder(server: Environment) -> None:
    candidate = CANDIDATES / "relu_honest_plain" / "candidate.py"
    argv: list[str | Path] = ["eval", candidate, "--problem", "relu", "--device", "cpu", "--size", "smoke", "--json"]
    done = server.run("kerneljudge", *argv)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["verdict"] == "passed"


def test_no_candidate_sees_what_is_installed_of_ours(server: Environment) -> None:
    hidden = [str(server.site_packages / name) for name in ("kerneljudge", "kerneljudge_server")]
    assert all(Path(folder, "__init__.py").is_file() for folder in hidden)
    candidate = server.working / "search.py"
    candidate.write_text(_SEARCH.format(hidden=hidden, shown=str(server.site_packages / "pip")))
    argv: list[str | Path] = [
        "eval",
        candidate,
        "--problem",
        "relu",
        "--device",
        "cpu",
        "--size",
        "smoke",
        "--tier",
        "check",
        "--json",
    ]
    done = server.run("kerneljudge", *argv)
    assert json.loads(done.stdout)["verdict"] == "passed", done.stdout + done.stderr


@pytest.mark.parametrize("process", ["api", "worker --queue build", "migrate", "webhook-sender"])
def test_the_server_starts_each_process_of_a_distributed_service(server: Environment, process: str) -> None:
    # Settings that are refused show that the process has begun, and end it.
    done = server.run("kerneljudge-server", *process.split(), KERNELJUDGE_LEASE_S="x")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "KERNELJUDGE_LEASE_S" in done.stderr


def test_the_servers_command_has_those_of_the_client(server: Environment) -> None:
    assert (
        server.run("kerneljudge-server", "--help").stdout.partition("Options")[2]
        == server.run("kerneljudge", "--help").stdout.partition("Options")[2]
    )
