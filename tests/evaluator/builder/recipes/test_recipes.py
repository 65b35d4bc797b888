"""The ladder of recipes, and whether the fast ones do what torch does."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from evaluator.builder.builder import Builder
from evaluator.builder.cache import Artifact, ArtifactCache, BuildFailure
from evaluator.builder.recipes import headers
from evaluator.builder.recipes.commands import TorchCommands
from evaluator.builder.recipes.headers import COMMANDS_FILE, INSTANTIATED_HEADERS, PRECOMPILED_HEADERS, header_folder
from evaluator.builder.recipes.ladder import PLAIN, RECIPES, Recipe, recipe_versions
from evaluator.builder.recipes.preparation import Preparation, find, make
from evaluator.builder.request import BuildRequest
from evaluator.errors import InfrastructureFault
from evaluator.processes.environment import ProcessEnvironment
from evaluator.results.assemble import build_details
from evaluator.sandbox.confinement import Confinement
from evaluator.sandbox.filesystem import Root, visible_paths

_INLINE: dict[str, Any] = {"name": "x", "cpp_sources": ["int f() { return 3; }"], "functions": ["f"]}
# Without torch's headers the plain recipe takes seconds.
_BARE: dict[str, Any] = {
    "name": "x",
    "cpp_sources": ['extern "C" int f() { return 3; }'],
    "no_implicit_headers": True,
    "is_python_module": False,
}


def _environment(folder: Path) -> dict[str, str]:
    return ProcessEnvironment(None, cache_dir=folder / "cache", scratch_dir=folder).environment


def _builder(
    folder: Path, *, prepared: Path | None = None, kind: str = "precompiled", recipes: tuple[Recipe, ...] | None = None
) -> Builder:
    """A builder for which the recipe ``kind`` is prepared, if any is: the other form of it is left out then."""
    if recipes is None:
        others = {"precompiled", "instantiated"} - {kind}
        recipes = tuple(recipe for recipe in RECIPES if prepared is None or recipe.name not in others)
    scratch = folder / "scratch"
    scratch.mkdir(parents=True)
    environment = _environment(scratch)
    environment["PYTHONPATH"] += f"{os.pathsep}{folder / 'modules'}"
    visible = visible_paths([] if prepared is None else [str(prepared)])
    return Builder(
        ArtifactCache(folder / "artifacts"),
        {"nvcc": None},
        environment,
        scratch,
        Confinement(Root(visible, (), (), 2**32), 2**33, 256, 2**32),
        slots=1,
        prepared={} if prepared is None else {kind: str(prepared)},
        recipes=recipes,
    )


def _build(builder: Builder, data: Mapping[str, Any], timeout_s: float = 250) -> Artifact | BuildFailure:
    return builder.build(BuildRequest.parse(data), timeout_s, threading.Event())[0]


# --- the ladder ------------------------------------------------------------------------------------------------------


def _recipe(folder: Path, name: str, body: str, preparation: Preparation | None = None) -> Recipe:
    """A recipe whose process does what ``body`` says."""
    (folder / "modules").mkdir(exist_ok=True)
    module = f"recipe_of_test_{name}"
    (folder / "modules" / f"{module}.py").write_text(
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from evaluator.builder.recipes.workplace import begin, deliver, fail, refuse, succeed\n"
        "task = begin()\n" + textwrap.dedent(body)
    )
    return Recipe(name, 1, module, lambda request: "not for it" not in str(request.texts), preparation)


_BUILDS = "Path('out').write_bytes(b'library'); deliver(Path('out'), int(sys.argv[1])); succeed(kernels=['k'])"


def test_what_a_recipe_refuses_the_next_one_builds(tmp_path: Path) -> None:
    recipes = (
        _recipe(tmp_path, "picky", "refuse('not\\n for me')"),
        _recipe(tmp_path, "broken", "os._exit(9)"),
        _recipe(tmp_path, "good", _BUILDS),
        _recipe(tmp_path, "never", "refuse('must not be asked')"),
    )
    builder = _builder(tmp_path, recipes=recipes)
    result = _build(builder, _INLINE)
    assert isinstance(result, Artifact), result
    assert (result.recipe, result.kernels) == ("good", ("k",))
    assert result.refusals == {"picky": "not for me", "broken": "its process ended with 9"}
    assert Path(str(result.path)).read_bytes() == b"library"
    assert list((tmp_path / "scratch").iterdir()) == []
    again, cached = builder.build(BuildRequest.parse(_INLINE), 250, threading.Event())
    assert cached
    assert again == result


def test_a_machine_without_ninja_is_no_mistake_of_the_candidate(tmp_path: Path) -> None:
    builder = _builder(tmp_path, recipes=(PLAIN,))
    builder._environment["PATH"] = "/nowhere"
    result = _build(builder, _BARE)
    assert isinstance(result, BuildFailure)
    assert result.toolchain_missing, result
    assert "ninja" in result.message


def test_a_recipe_that_says_what_is_wrong_with_the_sources_has_the_last_word(tmp_path: Path) -> None:
    recipes = (_recipe(tmp_path, "sure", "fail('no such thing')"), _recipe(tmp_path, "good", _BUILDS))
    result = _build(_builder(tmp_path, recipes=recipes), _INLINE)
    assert isinstance(result, BuildFailure)
    assert (result.message, result.recipe, result.refusals) == ("no such thing", "sure", {})


def test_compilers_have_the_processors_where_nobody_else_wants_them(tmp_path: Path) -> None:
    sessions = Path("/proc/self/autogroup")
    before = (os.nice(0), sessions.read_text() if sessions.exists() else None)
    body = """
    sessions = Path("/proc/self/autogroup")
    session = sessions.read_text().split(" ", 1)[1].strip() if sessions.exists() else None
    fail(f"{os.popen('nice').read().strip()}, {session}")
    """
    result = _build(_builder(tmp_path, recipes=(_recipe(tmp_path, "tells", body),)), _INLINE)
    assert isinstance(result, BuildFailure)
    assert result.message in ("19, nice 19", "19, None")
    assert (os.nice(0), sessions.read_text() if sessions.exists() else None) == before


def test_the_same_sources_under_another_name_are_built_once(tmp_path: Path) -> None:
    builder = _builder(tmp_path, recipes=(_recipe(tmp_path, "good", _BUILDS),))
    first = _build(builder, _INLINE)
    again, cached = builder.build(BuildRequest.parse({**_INLINE, "name": "y"}), 250, threading.Event())
    assert cached
    assert again == first
    own, cached = builder.build(BuildRequest.parse({**_BARE, "name": "y"}), 250, threading.Event())
    assert not cached
    assert own.name == "y"


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("main.cpp:3:5: error: no such thing", True),
        ("g++: fatal error: Killed signal terminated program cc1plus", False),
        ("main.cpp:1: error: /tmp/x.o: No space left on device", False),
        ("nothing that is known", False),
    ],
)
def test_an_error_of_the_sources_is_found_again_and_one_of_the_machine_is_not(
    tmp_path: Path, said: str, kept: bool
) -> None:
    builder = _builder(tmp_path, recipes=(_recipe(tmp_path, "sure", f"print({said!r}); fail()"),))
    first = _build(builder, _INLINE)
    assert isinstance(first, BuildFailure)
    again, cached = builder.build(BuildRequest.parse({**_INLINE, "name": "y"}), 250, threading.Event())
    assert cached == kept
    assert isinstance(again, BuildFailure)
    assert (again.message, again.recipe) == (first.message, "sure")


def test_a_recipe_that_does_not_handle_a_request_is_not_asked(tmp_path: Path) -> None:
    recipes = (_recipe(tmp_path, "picky", "refuse('asked')"), PLAIN)
    result = _build(_builder(tmp_path, recipes=recipes), {**_BARE, "cpp_sources": ["// not for it"]})
    assert isinstance(result, Artifact), result
    assert (result.recipe, result.refusals) == ("plain", {})


def test_all_recipes_together_take_no_longer_than_one_build_may(tmp_path: Path) -> None:
    recipes = (
        _recipe(tmp_path, "slow", "time.sleep(2); refuse('slowly')"),
        _recipe(tmp_path, "endless", "time.sleep(60)"),
        _recipe(tmp_path, "good", _BUILDS),
    )
    result = _build(_builder(tmp_path, recipes=recipes), _INLINE, 5)
    assert isinstance(result, BuildFailure)
    assert (result.timed_out, result.recipe) == (True, "endless")
    assert 5 <= result.seconds < 40  # of the 60 that it would take
    assert "longer than 5 s" in result.message


@pytest.mark.usefixtures("busy_processors")
def test_a_build_that_had_no_processor_is_our_fault(tmp_path: Path) -> None:
    recipes = (_recipe(tmp_path, "busy", "while True: pass"),)
    with pytest.raises(InfrastructureFault, match="hardly a processor"):
        _build(_builder(tmp_path, recipes=recipes), _INLINE, 5)


def test_what_is_not_prepared_is_passed_over_and_said(tmp_path: Path) -> None:
    result = _build(_builder(tmp_path), _BARE)
    assert isinstance(result, Artifact), result
    assert result.recipe == "plain"
    assert "kerneljudge prepare" in result.refusals["precompiled"]


def test_the_last_recipe_is_what_torch_does_and_every_version_is_in_the_key() -> None:
    assert RECIPES[-1] is PLAIN
    assert set(recipe_versions()) == {recipe.name for recipe in RECIPES}
    assert all(recipe.preparation is None or recipe.preparation.name == recipe.name for recipe in RECIPES)


def test_a_record_says_how_each_extension_was_built() -> None:
    fast = asdict(Artifact("k", "a", None, (), 1.5, "", recipe="precompiled"))
    slow = asdict(Artifact("k", "b", None, (), 30.0, "", refusals={"precompiled": "why"}))
    failed = {**asdict(BuildFailure("c", "an error", "", 2.0)), "error": "an error"}
    found = build_details([{**build, "cached": False} for build in (fast, slow, failed)])
    assert found == [
        {"name": "a", "recipe": "precompiled", "seconds": 1.5, "cached": False},
        {"name": "b", "recipe": "plain", "seconds": 30.0, "cached": False, "refusals": {"precompiled": "why"}},
    ]


# --- the same files as torch's ---------------------------------------------------------------------------------------

_REQUESTS: tuple[dict[str, Any], ...] = (
    {},
    {"functions": []},
    {"functions": ["f", "g"]},
    {"functions": {"f": 'says "f"\nand g', "g": "kj_mark_function kj_mark_name"}},
    {"functions": ["f"], "with_pytorch_error_handling": False},
    {"functions": ["f"], "no_implicit_headers": True},
    {"cpp_sources": []},
    {"cpp_sources": ["int a;", "kj_mark_text", "int b;\r\n"]},
    {"extra_cflags": [" -O3 ", "", "-DA='b c'", "; touch x", "kj_mark_name $in", "-o x"]},
    {"extra_ldflags": ["-lm", "-Wl,-rpath,/a b"]},
    {"extra_include_paths": ["a b", ".", "/usr/include"]},
    {"files": {"a.cpp": "int a;", "b.cc": "int b;"}, "extra_cflags": ["-O2"]},
    {"files": {"main.cpp": "int a;"}, "with_cuda": False},
)
_ASKING = """
import json, sys, tempfile
from pathlib import Path
from evaluator.builder.request import BuildRequest
from evaluator.builder.recipes.template import written_by_torch
for data in json.load(sys.stdin):
    directory = Path(tempfile.mkdtemp(dir=Path.cwd()))
    print(json.dumps([str(directory), written_by_torch(BuildRequest.parse(data), directory)]))
"""


@pytest.fixture(scope="session")
def commands(tmp_path_factory: pytest.TempPathFactory) -> TorchCommands:
    folder = tmp_path_factory.mktemp("template")
    command = [sys.executable, "-m", "evaluator.builder.recipes.template"]
    done = subprocess.run(command, cwd=folder, env=_environment(folder), capture_output=True, text=True, check=True)
    return TorchCommands.from_json(json.loads(done.stdout))


def test_the_files_are_those_that_torch_writes(
    commands: TorchCommands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = [{"name": f"x{number}", "cpp_sources": ["int y;"], **data} for number, data in enumerate(_REQUESTS)]
    done = subprocess.run(
        [sys.executable, "-c", _ASKING],
        cwd=tmp_path,
        env=_environment(tmp_path),
        input=json.dumps(requests),
        capture_output=True,
        text=True,
        check=True,
    )
    monkeypatch.chdir(tmp_path)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    for data, (directory, written) in zip(requests, answers, strict=True):
        request = BuildRequest.parse(data)
        fields = asdict(request)
        sources = [name for name, _ in request.files] or ["main.cpp"]
        assert commands.ninja_text(fields, Path(directory), sources) == written["build.ninja"], data
        if not request.files:
            assert commands.main_text(fields) == written["main.cpp"], data


@pytest.mark.parametrize("data", [{}, {"main": 1, "main_bare": "", "ninja": ""}])
def test_damaged_templates_are_refused(data: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="no templates"):
        TorchCommands.from_json(data)


# --- which header ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "variant"),
    [
        ([], "default"),
        (["", "-Wall", "-DX=1", "-w"], "default"),
        (["-O2"], "O2"),
        (["-O3 -std=c++20"], "O3"),
        (["-O1"], None),
        (["-O2", "-O3"], None),
        (["-O3", "-march=native"], None),
        (["-std=c++17"], None),
        (["-D", "X"], None),
        (["-Wl,-x"], None),
        (["-include", "x.h"], None),
        (["-o x"], None),
        (["@file"], None),
        (["-fplugin=x.so"], None),
        (["-DX='a'"], None),
        (["-DX;touch"], None),
        (["-DX=$HOME"], None),
    ],
)
def test_a_header_is_taken_for_the_flags_that_it_was_compiled_with(flags: list[str], variant: str | None) -> None:
    folder = Path("/prepared")
    expected = None if variant is None else folder / "headers" / variant
    assert header_folder(folder, flags) == expected


# --- the precompiled recipe ------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What ``make test`` has prepared, or as much of it as these tests need."""
    yield from _prepared(PRECOMPILED_HEADERS, tmp_path_factory.mktemp("prepared"))


@pytest.fixture(scope="session")
def instantiated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The same in the other form."""
    yield from _prepared(INSTANTIATED_HEADERS, tmp_path_factory.mktemp("instantiated"))


def _prepared(preparation: Preparation, folder: Path) -> Iterator[Path]:
    assert preparation.missing(_environment(folder)) is None
    found = find(preparation, _environment(folder))
    if found is not None:
        yield found.folder
        return
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(headers, "_VARIANTS", {frozenset(): "default"})
        patched.setenv("KERNELJUDGE_PREPARED_DIR", str(folder))
        made = make(preparation, _environment(folder), lambda _line: None)
    # Not within the context: whatever else has been prepared would not be found until the end of the session.
    yield made.folder
    shutil.rmtree(folder)


@pytest.fixture
def without_headers(commands: TorchCommands, tmp_path: Path) -> Path:
    """A preparation that has torch's commands and no header: everything is read as text."""
    folder = tmp_path / "without-headers"
    folder.mkdir()
    (folder / COMMANDS_FILE).write_text(json.dumps(commands.to_json()))
    (folder / "included.json").write_text('["math.h", "torch"]')
    return folder


_USES_TORCH = """#include <torch/extension.h>
#include <vector>
torch::Tensor twice(torch::Tensor x) { return x + x; }
std::vector<torch::Tensor> both(torch::Tensor x, double y) { return {x, x * y}; }
"""


_USING_TORCH: dict[str, Any] = {"name": "x", "cpp_sources": [_USES_TORCH], "functions": ["twice", "both"]}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """The plain build of ``_USING_TORCH``, which takes the longest of all: once for all that is compared with it."""
    built = _build(_builder(tmp_path_factory.mktemp("plain"), recipes=(PLAIN,)), _USING_TORCH)
    assert isinstance(built, Artifact), built
    return built


@pytest.mark.timeout(900)
def test_a_build_with_the_precompiled_header_is_machine_code_for_machine_code_the_plain_one(
    prepared: Path, plain: Artifact, tmp_path: Path
) -> None:
    fast = _build(_builder(tmp_path / "fast", prepared=prepared), _USING_TORCH)
    assert isinstance(fast, Artifact), fast
    assert (fast.recipe, plain.recipe) == ("precompiled", "plain")
    assert fast.log == plain.log
    assert _instructions(fast) == _instructions(plain)


def _instructions(artifact: Artifact) -> str:
    command = ["objdump", "--disassemble", "--no-show-raw-insn", str(artifact.path)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.partition("\n\n")[2]


@pytest.mark.timeout(900)
def test_with_its_templates_instantiated_ahead_the_functions_of_a_candidates_own_are_the_same(
    instantiated: Path, plain: Artifact, tmp_path: Path
) -> None:
    fast = _build(_builder(tmp_path / "fast", prepared=instantiated, kind="instantiated"), _USING_TORCH)
    assert isinstance(fast, Artifact), fast
    assert (fast.recipe, plain.recipe) == ("instantiated", "plain")
    assert (fast.refusals, fast.log) == ({}, plain.log)
    assert _exported(fast) == _exported(plain)
    for name in ("twice", "both"):
        assert len(_own_instructions(fast, name)) > 5
        assert _own_instructions(fast, name) == _own_instructions(plain, name)
    outcomes = {_called(artifact) for artifact in (fast, plain)}
    assert outcomes == {"[[2.0, 4.0], [3.0, 6.0]]\n"}


def _exported(artifact: Artifact) -> set[str]:
    """The functions that a library has for others; but for those that each user of a header has a copy of."""
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", str(artifact.path)], capture_output=True, text=True, check=True
    ).stdout
    return {line.split()[-1] for line in listed.splitlines() if line.split()[-2] != "W"}


def _own_instructions(artifact: Artifact, function: str) -> list[str]:
    """The instructions of a function, without where they and others are."""
    command = ["objdump", "--disassemble", "--demangle", "--no-show-raw-insn", "--no-addresses", str(artifact.path)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    (body,) = [part for part in text.split("\n\n") if part.lstrip("\n").startswith(f"<{function}(")]
    kept = (re.sub(r"\b[0-9a-f]+ (?=<)", "", line.strip()) for line in body.splitlines()[1:])  # targets have names
    return [re.sub(r"0x[0-9a-f]+\(%rip\).*", "(%rip)", line) for line in kept if not line.startswith("nop")]


def _called(artifact: Artifact) -> str:
    """What the two functions of ``_USES_TORCH`` return, in a process of their own."""
    command = [sys.executable, "-c", _CALLING, artifact.name, str(artifact.path)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


_CALLING = """
import importlib.util, sys, torch
spec = importlib.util.spec_from_file_location(*sys.argv[1:])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
x = torch.tensor([1.0, 2.0])
print([module.twice(x).tolist(), module.both(x, 3.0)[1].tolist()])
"""

_MISTAKES = """#include <torch/extension.h>
int g(torch::Tensor x) { return y; }
torch::Tensor h(torch::Tensor x) { return x.no_such_method(); }
torch::Tensor i(torch::Tensor x) { return at::relu(x, 1, 2) }
float j(torch::Tensor x) { float* p = x.data_ptr<std::string>(); return *p; }
#warning of the candidate's own
"""

# pybind11 itself uses it.
_SPECIALIZES_TOO_LATE = """#include <torch/extension.h>
template <> void pybind11::detail::small_vector<bool, 6ul>::push_back(bool) {}
"""


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cpp_sources": [_MISTAKES]}, "main.cpp:3: "),
        ({"functions": ["f", "no_such_function"]}, "no_such_function"),
        ({"cpp_sources": [_SPECIALIZES_TOO_LATE]}, "after instantiation"),
    ],
)
def test_a_mistake_reads_as_it_does_in_the_plain_recipe(
    change: dict[str, Any], message: str, prepared: Path, instantiated: Path, tmp_path: Path
) -> None:
    plain = _build(_builder(tmp_path / "plain", recipes=(PLAIN,)), {**_INLINE, **change})
    assert isinstance(plain, BuildFailure)
    for kind, folder in (("precompiled", prepared), ("instantiated", instantiated)):
        fast = _build(_builder(tmp_path / kind, prepared=folder, kind=kind), {**_INLINE, **change})
        assert isinstance(fast, BuildFailure)
        assert (fast.recipe, fast.refusals) == (kind, {})
        assert message in fast.message
        assert fast.message == plain.message
        # But for who includes torch's header, which was none when it was compiled.
        assert _without_inclusions(fast.log) == _without_inclusions(plain.log)


def _without_inclusions(log: str) -> list[str]:
    return [line for line in log.splitlines() if not line.lstrip().startswith(("In file included from", "from "))]


@pytest.mark.parametrize(
    "change",
    [
        {"cpp_sources": ["#include </etc/passwd>"]},
        {"cpp_sources": ['#include "missing.h"']},
        {"extra_cflags": ["-o elsewhere.o"]},
        {"extra_cflags": ["@arguments"]},
        {"extra_cflags": ["-fplugin=/nowhere.so"]},
        {"extra_cflags": ["; exit 3 #"]},
        {"extra_ldflags": ["-lno_such_library"]},
        {"functions": ["no such function"]},
    ],
)
def test_a_strange_request_fails_as_it_does_in_the_plain_recipe(
    change: dict[str, Any], without_headers: Path, tmp_path: Path
) -> None:
    fast = _build(_builder(tmp_path / "fast", prepared=without_headers), {**_BARE, **change})
    plain = _build(_builder(tmp_path / "plain", recipes=(PLAIN,)), {**_BARE, **change})
    assert isinstance(fast, BuildFailure)
    assert isinstance(plain, BuildFailure)
    assert (fast.message, fast.log) == (plain.message, plain.log)
    assert fast.toolchain_missing == plain.toolchain_missing


def test_several_files_with_a_header_of_their_own_are_built(without_headers: Path, tmp_path: Path) -> None:
    request = {
        "name": "x",
        "files": {"a.cpp": '#include "own.h"\nint a() { return OWN; }', "b.cc": "int a(); int b() { return a(); }"},
        "headers": {"own.h": "#define OWN 7"},
        "extra_include_paths": ["."],
        "is_python_module": False,
    }
    result = _build(_builder(tmp_path / "fast", prepared=without_headers), request)
    assert isinstance(result, Artifact), result
    assert (result.recipe, result.refusals) == ("precompiled", {})
    assert result.path is not None
    symbols = subprocess.run(["nm", "-DC", result.path], capture_output=True, text=True, check=True).stdout
    assert "T a()" in symbols
    assert "T b()" in symbols


@pytest.mark.parametrize("change", [{"extra_include_paths": ["."]}, {"extra_cflags": ["-I."]}])
def test_a_candidates_header_that_torchs_might_include_is_left_to_the_plain_recipe(
    change: dict[str, Any], without_headers: Path, tmp_path: Path
) -> None:
    request = {**_BARE, "headers": {"math.h": "#define MINE"}, **change}
    result = _build(_builder(tmp_path / "fast", prepared=without_headers), request)
    assert isinstance(result, Artifact), result
    assert result.refusals == {"precompiled": "torch's header might include the candidate's math.h"}


@pytest.mark.parametrize("text", ["{", "{}", '{"main": "", "main_bare": "", "ninja": ""}'])
def test_what_is_damaged_is_left_to_the_plain_recipe(text: str, without_headers: Path, tmp_path: Path) -> None:
    (without_headers / COMMANDS_FILE).write_text(text)
    result = _build(_builder(tmp_path / "fast", prepared=without_headers), _BARE)
    assert isinstance(result, Artifact), result
    assert result.recipe == "plain"
    assert list(result.refusals) == ["precompiled"]


def test_a_header_that_the_compiler_cannot_use_is_read_as_text(without_headers: Path, tmp_path: Path) -> None:
    header = without_headers / "headers" / "default" / "torch" / "extension.h.gch"
    header.parent.mkdir(parents=True)
    header.write_bytes(b"gpch.014" + b"x" * 5000)
    request = {"name": "x", "cpp_sources": ["#include <torch/version.h>\nint major = TORCH_VERSION_MAJOR;"]}
    result = _build(_builder(tmp_path / "fast", prepared=without_headers), request)
    assert isinstance(result, Artifact), result
