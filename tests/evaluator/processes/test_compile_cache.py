"""Files that candidates' own compilers make: packed without trust, kept for the same source alone."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from evaluator.candidates.candidate import Candidate, InvalidSource, parse_candidate
from evaluator.config import EvalConfig, SamplingPlan
from evaluator.engine import Engine
from evaluator.evaluation import Evaluation, Verdict
from evaluator.problems.problem import Problem
from evaluator.processes.compile_cache import CompileCache
from evaluator.sandbox import compile_archive
from evaluator.sandbox.compile_archive import pack, unpack
from tests.corpus import load_case

LARGE = 2**40
CONFIG = EvalConfig(device="cpu", size="smoke", sampling=SamplingPlan(trials=1, gradient_trials=1, max_samples=0))
# Returns zeros where a file of before is there, which its first evaluation leaves behind.
WRONG_WITH_FILES = """\
import os
from pathlib import Path

import torch

folder = Path(os.environ["TRITON_CACHE_DIR"])
seen = (folder / "seen").exists()
folder.mkdir(exist_ok=True)
(folder / "seen").touch()


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.zeros_like(x) if seen else torch.relu(x)
"""
# Says whether there is a file of before.
TELLS = WRONG_WITH_FILES.replace("torch.zeros_like(x) if seen else ", "").replace(
    "\n\n\nclass", '\nprint("there was a file:", seen)\n\n\nclass'
)


@pytest.fixture
def working_folder(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """The working folder of a runner, and a descriptor of it."""
    folder = tmp_path / "worked"
    folder.mkdir()
    descriptor = os.open(folder, os.O_RDONLY)
    yield folder, descriptor
    os.close(descriptor)


@pytest.fixture
def own_engine(tmp_path: Path) -> Iterator[Engine]:
    with Engine(device="cpu", cache_dir=tmp_path / "cache") as engine:
        yield engine


def candidate_of(source: str) -> Candidate:
    candidate = parse_candidate(code=source)
    assert not isinstance(candidate, InvalidSource)
    return candidate


def unpacked(archive: Path, folder: Path) -> dict[str, bytes]:
    """Every file that a runner gets from the archive, by its path."""
    folder.mkdir()
    unpack(os.open(archive, os.O_RDONLY), folder)
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_plain_files_of_the_compilers_are_packed(working_folder: tuple[Path, int], tmp_path: Path) -> None:
    folder, descriptor = working_folder
    (folder / "triton/ab").mkdir(parents=True)
    (folder / "triton/ab/kernel.cubin").write_bytes(b"\x7fELF")
    (folder / "inductor").mkdir()
    (folder / "inductor/main.so").write_bytes(b"library")
    (folder / "inductor/main.so").chmod(0o755)
    (folder / "candidate.py").write_text("source")
    archive = tmp_path / "archive.tar"
    assert pack(descriptor, archive)
    found = unpacked(archive, tmp_path / "next")
    assert found == {"triton/ab/kernel.cubin": b"\x7fELF", "inductor/main.so": b"library"}
    assert os.access(tmp_path / "next/inductor/main.so", os.X_OK)


def test_nothing_but_plain_files_is_packed(working_folder: tuple[Path, int], tmp_path: Path) -> None:
    folder, descriptor = working_folder
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "file").write_text("of the machine")
    (folder / "triton").mkdir()
    (folder / "triton/link").symlink_to(secret / "file")
    (folder / "triton/folder").symlink_to(secret)
    os.mkfifo(folder / "triton/pipe")
    (folder / "inductor").symlink_to(secret)
    (folder / "cuda").write_text("no folder")
    strange = os.fsencode(folder / "triton") + b"/\xff\n"
    Path(os.fsdecode(strange)).write_text("strange")
    archive = tmp_path / "archive.tar"
    assert pack(descriptor, archive)
    assert unpacked(archive, tmp_path / "next") == {f"triton/{os.fsdecode(bytes([255]))}\n": b"strange"}


def test_a_group_of_tritons_names_the_files_beside_it(working_folder: tuple[Path, int], tmp_path: Path) -> None:
    """By whole paths, which are others where each runner has a folder of its own."""
    folder, descriptor = working_folder
    kernels = folder / "triton/KEY"
    kernels.mkdir(parents=True)
    (kernels / "add.cubin").write_bytes(b"\x7fELF")
    group = {"child_paths": {"add.cubin": str(kernels / "add.cubin"), "add.json": str(kernels / "add.json")}}
    (kernels / "__grp__add.json").write_text(json.dumps(group))
    others = {
        "list": "[]",
        "deep": "[" * 100_000,
        "number": '{"child_paths": {"add": 1}}',
        "none": "{}",
        "text": "\x00",
    }
    for name, text in others.items():
        (kernels / f"__grp__{name}.json").write_text(text)
    assert pack(descriptor, tmp_path / "archive.tar")
    shutil.rmtree(folder)
    found = unpacked(tmp_path / "archive.tar", tmp_path / "next")
    named = json.loads(found["triton/KEY/__grp__add.json"])["child_paths"]
    assert named == {name: str(tmp_path / "next/triton/KEY" / name) for name in ("add.cubin", "add.json")}
    assert Path(named["add.cubin"]).read_bytes() == b"\x7fELF"
    assert {name: found[f"triton/KEY/__grp__{name}.json"].decode() for name in others} == others


def test_an_empty_folder_leaves_no_archive(working_folder: tuple[Path, int], tmp_path: Path) -> None:
    folder, descriptor = working_folder
    (folder / "triton/empty").mkdir(parents=True)
    assert not pack(descriptor, tmp_path / "archive.tar")
    assert not (tmp_path / "archive.tar").exists()


@pytest.mark.parametrize("excess", ["bytes", "files", "links", "levels"])
def test_too_much_leaves_no_archive(
    working_folder: tuple[Path, int], tmp_path: Path, excess: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, descriptor = working_folder
    (folder / "triton").mkdir()
    (folder / "triton/first").write_text("there is something")
    if excess == "bytes":
        with (folder / "triton/sparse").open("wb") as file:
            file.truncate(LARGE)
    elif excess == "files":
        monkeypatch.setattr(compile_archive, "_MAX_ENTRIES", 10)
        for number in range(10):
            (folder / f"triton/{number}").touch()
    elif excess == "links":
        monkeypatch.setattr(compile_archive, "_MAX_ENTRIES", 10)
        for number in range(10):
            (folder / f"triton/{number}").symlink_to("first")
    else:
        (folder / "triton" / "/".join(["deep"] * 40)).mkdir(parents=True)
    assert not pack(descriptor, tmp_path / "archive.tar")
    assert not (tmp_path / "archive.tar").exists()


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty"])
def test_a_damaged_archive_is_none(working_folder: tuple[Path, int], tmp_path: Path, damage: str) -> None:
    folder, descriptor = working_folder
    (folder / "triton").mkdir()
    for number in range(3):
        (folder / f"triton/{number}").write_bytes(b"x" * 4000)
    archive = tmp_path / "archive.tar"
    assert pack(descriptor, archive)
    cache = CompileCache(tmp_path / "cache", LARGE)
    assert cache.keep("key", archive)
    assert not cache.keep("key", archive), "it is there already"
    (stored,) = (tmp_path / "cache").rglob("*.archive")
    content = stored.read_bytes()
    at = len(content) // 2
    flipped = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
    stored.write_bytes({"cut": content[:at], "flipped": flipped, "empty": b""}[damage])
    assert cache.open("key") is None
    assert not stored.exists()
    assert cache.keep("key", archive)
    again = cache.open("key")
    assert again is not None
    target = tmp_path / "next"
    target.mkdir()
    unpack(again, target)
    assert sorted(path.name for path in target.rglob("*") if path.is_file()) == ["0", "1", "2"]


def test_the_same_files_make_the_same_archive(working_folder: tuple[Path, int], tmp_path: Path) -> None:
    folder, descriptor = working_folder
    (folder / "inductor").mkdir()
    for number in range(3):
        (folder / f"inductor/{number}").write_text(f"file {number}")
    assert pack(descriptor, tmp_path / "one")
    for path in (folder / "inductor").iterdir():
        os.utime(path, times=(1.0, 1.0))
    assert pack(descriptor, tmp_path / "other")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


def test_an_archive_is_that_of_one_source_under_one_setting(problems: dict[str, Problem]) -> None:
    environment = {"torch": "2.13", "device_name": "a card"}
    keys = [
        CompileCache.key(problem, config, source, found)
        for problem, config, source, found in (
            (problems["relu"], CONFIG, "source", environment),
            (problems["relu"], CONFIG, "source ", environment),
            (problems["relu"], replace(CONFIG, size="full"), "source", environment),
            (problems["relu"], replace(CONFIG, precision="float16"), "source", environment),
            (replace(problems["relu"], source="changed"), CONFIG, "source", environment),
            (problems["gelu"], CONFIG, "source", environment),
            (problems["relu"], CONFIG, "source", {**environment, "torch": "2.14"}),
        )
    ]
    assert len(set(keys)) == len(keys)
    # Limits and plans of sampling change nothing that is compiled.
    changed = replace(CONFIG, sampling=SamplingPlan(), compare_compiled=True)
    assert CompileCache.key(problems["relu"], changed, "source", environment) == keys[0]


def test_archives_used_longest_ago_make_room(tmp_path: Path) -> None:
    cache = CompileCache(tmp_path / "cache", limit_bytes=300)
    archive = tmp_path / "archive"
    archive.write_bytes(b"x" * 100)
    for age_s, key in ((300, "aa1"), (200, "bb2")):
        cache.keep(key, archive)
        os.utime(tmp_path / "cache" / key[:2] / f"{key}.archive", times=(1e9 - age_s, 1e9 - age_s))
    descriptor = cache.open("aa1")  # used just now
    assert descriptor is not None
    os.close(descriptor)
    cache.keep("cc3", archive)
    there = sorted(path.stem for path in (tmp_path / "cache").rglob("*.archive"))
    assert there == ["aa1", "cc3"]
    cache.forget("cc3")
    cache.forget("cc3")
    assert cache.open("cc3") is None


@pytest.mark.timeout(600)
def test_a_second_evaluation_compiles_nothing(own_engine: Engine, problems: dict[str, Problem]) -> None:
    case = load_case("honest_compile")
    source = case.source + (
        "\nimport torch._dynamo.utils\n"
        "_forward = ModelNew.forward\n"
        "def forward(self, *inputs):\n"
        "    found = _forward(self, *inputs)\n"
        "    counters = torch._dynamo.utils.counters['inductor']\n"
        "    print('misses', counters['fxgraph_cache_miss'], 'hits', counters['fxgraph_cache_hit'], flush=True)\n"
        "    return found\n"
        "ModelNew.forward = forward\n"
    )
    config = replace(case.config("cpu"), sampling=CONFIG.sampling)
    first, second = (own_engine.evaluate(problems[case.problem], candidate_of(source), config) for _ in range(2))
    assert (first.verdict, second.verdict) == (Verdict.PASSED, Verdict.PASSED), (first.message, second.message)
    assert (first.details["compile_cache"], second.details["compile_cache"]) == ("kept", "restored")
    assert "misses 0 hits" not in last_line(first)
    assert "misses 0 hits" in last_line(second)


@pytest.mark.gpu
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("cuda_engine")
def test_a_second_evaluation_compiles_no_kernel_of_triton(problems: dict[str, Problem], tmp_path: Path) -> None:
    case = load_case("honest_cuda_triton")
    source = case.source + (
        "\nfrom triton.runtime.cache import FileCacheManager\n"
        "_put, _forward, compiled = FileCacheManager.put, ModelNew.forward, []\n"
        "def put(self, data, filename, *arguments, **options):\n"
        "    compiled.append(filename)\n"
        "    return _put(self, data, filename, *arguments, **options)\n"
        "def forward(self, *inputs):\n"
        "    found = _forward(self, *inputs)\n"
        "    print('compiled', sum(name.endswith('.cubin') for name in compiled), flush=True)\n"
        "    return found\n"
        "FileCacheManager.put, ModelNew.forward = put, forward\n"
    )
    # The kernel of the first backward is told of by the forward after it.
    config = replace(case.config("cuda:0"), sampling=replace(CONFIG.sampling, gradient_trials=2))
    with Engine(device="cuda:0", cache_dir=tmp_path / "cache") as engine:
        first, second = (engine.evaluate(problems[case.problem], candidate_of(source), config) for _ in range(2))
    assert (first.verdict, second.verdict) == (Verdict.PASSED, Verdict.PASSED), (first.message, second.message)
    assert (first.details["compile_cache"], second.details["compile_cache"]) == ("kept", "restored")
    assert int(last_line(first).removeprefix("compiled ")) >= 2, first.log
    assert last_line(second) == "compiled 0", second.log


def last_line(evaluation: Evaluation) -> str:
    return evaluation.log.strip().splitlines()[-1]


def test_files_are_given_to_the_same_source_alone(own_engine: Engine, problems: dict[str, Problem]) -> None:
    found = [
        own_engine.evaluate(problems["relu"], candidate_of(source), CONFIG)
        for source in (TELLS, TELLS, f"# another source\n{TELLS}")
    ]
    assert [each.verdict for each in found] == [Verdict.PASSED] * 3, [each.message for each in found]
    assert [last_line(each) for each in found] == [f"there was a file: {each}" for each in (False, True, False)]


def test_files_that_a_candidate_does_not_pass_with_are_forgotten(
    own_engine: Engine, problems: dict[str, Problem]
) -> None:
    found = [own_engine.evaluate(problems["relu"], candidate_of(WRONG_WITH_FILES), CONFIG) for _ in range(3)]
    # The verdict stands: else a candidate could try a trick with these files, and be judged once more without it.
    assert [each.verdict for each in found] == [Verdict.PASSED, Verdict.WRONG_OUTPUT, Verdict.PASSED]
    assert [each.details["compile_cache"] for each in found] == ["kept", "restored", "kept"]
    assert "the next one compiles anew" in found[1].notes[-1]


def test_nothing_is_kept_of_a_wrong_candidate(own_engine: Engine, problems: dict[str, Problem]) -> None:
    wrong = TELLS.replace("torch.relu(x)", "torch.zeros_like(x)")
    for _ in range(2):
        evaluation = own_engine.evaluate(problems["relu"], candidate_of(wrong), CONFIG)
        assert evaluation.verdict is Verdict.WRONG_OUTPUT
        assert "compile_cache" not in evaluation.details
        assert last_line(evaluation) == "there was a file: False"
