"""What is made beforehand: found only where it fits, and never half there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evaluator.builder.recipes import headers
from evaluator.builder.recipes.headers import INSTANTIATED_HEADERS, PRECOMPILED_HEADERS
from evaluator.builder.recipes.ladder import PLAIN, Recipe
from evaluator.builder.recipes.preparation import Preparation, PreparationFailed, find, make, root, toolchain_facts
from evaluator.processes import prepare_machine as preparing
from evaluator.processes.environment import ProcessEnvironment

_ENVIRONMENT: Mapping[str, str] = {"PATH": "/usr/bin:/bin"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KERNELJUDGE_PREPARED_DIR", str(tmp_path / "prepared"))
    return tmp_path / "prepared"


def _preparation(
    made: list[str],
    *,
    facts: Mapping[str, Any] | None = None,
    missing: str | None = None,
    error: Exception | None = None,
) -> Preparation:
    def make_in(folder: Path, environment: Mapping[str, str], tell: Callable[[str], None]) -> None:
        (folder / "inner").mkdir()
        (folder / "inner" / "file").write_text("content")
        tell("a file")
        if error is not None:
            raise error
        made.append(str(folder))

    return Preparation("fake", "faster", lambda _environment: missing, lambda _environment: dict(facts or {}), make_in)


def _ignore(_line: str) -> None:
    pass


def test_it_is_made_once_and_read_only(folder: Path) -> None:
    made: list[str] = []
    preparation = _preparation(made)
    assert find(preparation, _ENVIRONMENT) is None
    lines: list[str] = []
    first = make(preparation, _ENVIRONMENT, lines.append)
    assert lines == ["a file"]
    assert (first.folder / "inner" / "file").read_text() == "content"
    assert (first.folder / "inner" / "file").stat().st_mode & 0o777 == 0o444
    assert first.folder.stat().st_mode & 0o777 == 0o755
    assert first.size_bytes == len("content")
    again = make(preparation, _ENVIRONMENT, lines.append)
    assert (again.folder, again.seconds, len(made)) == (first.folder, 0.0, 1)
    assert [path.name for path in (folder / "fake").iterdir()] == [first.folder.name]


def test_another_toolchain_does_not_find_it() -> None:
    make(_preparation([], facts={"torch": "1"}), _ENVIRONMENT, _ignore)
    assert find(_preparation([], facts={"torch": "2"}), _ENVIRONMENT) is None


@pytest.mark.parametrize("damage", ["longer content", None])
def test_what_is_damaged_is_not_found_and_made_again(damage: str | None) -> None:
    made: list[str] = []
    preparation = _preparation(made)
    file = make(preparation, _ENVIRONMENT, _ignore).folder / "inner" / "file"
    file.unlink()
    if damage is not None:
        file.write_text(damage)
    assert find(preparation, _ENVIRONMENT) is None
    assert make(preparation, _ENVIRONMENT, _ignore).folder == file.parent.parent
    assert file.read_text() == "content"
    assert len(made) == 2


@pytest.mark.parametrize("error", [PreparationFailed("no luck"), OSError(28, "No space left on device")])
def test_what_fails_leaves_nothing_behind(error: Exception, folder: Path) -> None:
    preparation = _preparation([], error=error)
    with pytest.raises(PreparationFailed, match=r"no luck|No space left"):
        make(preparation, _ENVIRONMENT, _ignore)
    assert list((folder / "fake").iterdir()) == []
    assert find(preparation, _ENVIRONMENT) is None


def test_a_folder_that_cannot_be_written_to_is_said(folder: Path) -> None:
    folder.write_text("a file")
    with pytest.raises(PreparationFailed, match="cannot be written to"):
        make(_preparation([]), _ENVIRONMENT, _ignore)


def test_facts_name_torch_python_and_the_compiler(tmp_path: Path) -> None:
    environment = ProcessEnvironment(None, cache_dir=tmp_path / "cache", scratch_dir=tmp_path).environment
    facts = toolchain_facts(environment)
    assert all(facts[name] for name in ("torch", "torch_version", "python", "compiler_path", "compiler_version"))
    assert toolchain_facts({**environment, "CXX": "another"}) != facts


def test_compilers_see_the_folder_and_runners_do_not_need_to(folder: Path, tmp_path: Path) -> None:
    folder.mkdir()
    surroundings = ProcessEnvironment(None, cache_dir=tmp_path / "cache", scratch_dir=tmp_path / "scratch")
    visible = [Path(path) for path in surroundings.compiler_confinement().root.visible]
    assert any(root().is_relative_to(path) for path in visible)


def test_every_preparation_is_tried_and_none_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    good = _preparation([])
    recipes = (
        Recipe("fails", 1, "m", lambda _request: True, _preparation([], error=PreparationFailed("no luck"))),
        Recipe("lacks", 1, "m", lambda _request: True, _preparation([], missing="a compiler")),
        Recipe("good", 1, "m", lambda _request: True, good),
        PLAIN,
    )
    monkeypatch.setattr(preparing, "RECIPES", recipes)
    before = {state.name: state.obstacle for state in preparing.recipe_states()}
    assert before == {
        "fails": "not prepared: run kerneljudge prepare",
        "lacks": "needs a compiler",
        "good": "not prepared: run kerneljudge prepare",
        "plain": None,
    }
    results = list(preparing.prepare(_ignore))
    assert [result.obstacle for result in results] == ["no luck", "this machine lacks a compiler", None]
    assert results[2].folder is not None
    assert next(state.obstacle for state in preparing.recipe_states() if state.name == "good") is None


def test_what_another_recipe_covers_is_prepared_only_where_that_one_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    def recipes(obstacle: str | None) -> tuple[Recipe, ...]:
        return (
            Recipe("faster", 1, "m", lambda _request: True, replace(_preparation([], missing=obstacle), name="faster")),
            Recipe("slower", 1, "m", lambda _request: True, replace(_preparation([]), name="slower"), "faster"),
            PLAIN,
        )

    monkeypatch.setattr(preparing, "RECIPES", recipes(None))
    assert [(state.obstacle, state.covered_by) for state in preparing.recipe_states()] == [
        ("not prepared: run kerneljudge prepare", None),
        ("not prepared: run kerneljudge prepare", None),
        (None, None),
    ]
    results = list(preparing.prepare(_ignore))
    assert [(result.folder is None, result.covered_by) for result in results] == [(False, None), (True, "faster")]
    assert [(state.obstacle, state.covered_by) for state in preparing.recipe_states()][1] == (None, "faster")
    (alone,) = preparing.prepare(_ignore, ["slower"])
    assert alone.folder is not None

    monkeypatch.setattr(preparing, "RECIPES", recipes("headers"))
    results = list(preparing.prepare(_ignore))
    assert [(result.folder is None, result.obstacle) for result in results] == [
        (True, "this machine lacks headers"),
        (False, None),
    ]


def test_without_the_compilers_headers_for_plugins_its_own_form_of_the_header_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "c++"
    compiler.write_text(f"#!/bin/sh\necho {tmp_path}/plugin\n")
    compiler.chmod(0o755)
    monkeypatch.setattr(headers, "compiler_versions", lambda: {"compiler": "c++ 12"})
    environment = {**_ENVIRONMENT, "CXX": str(compiler)}
    assert PRECOMPILED_HEADERS.missing(environment) is None
    assert "plugin-dev" in str(INSTANTIATED_HEADERS.missing(environment))
    for name in ("gcc-plugin.h", "cp/cp-tree.h"):
        (tmp_path / "plugin" / "include" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "plugin" / "include" / name).write_text("")
    assert INSTANTIATED_HEADERS.missing(environment) is None
