"""Which folders are this project's own, wherever it is installed. Starting Python: ``tests/test_working_folder.py``."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from evaluator.interpreter import DISTRIBUTION_ROOT, own_packages
from evaluator.processes.environment import ProcessEnvironment


def test_in_a_checkout_all_packages_that_are_released_or_checked_are_its_own() -> None:
    settings = tomllib.loads((DISTRIBUTION_ROOT / "pyproject.toml").read_text())["tool"]
    released = {pattern.removesuffix("*") for pattern in settings["setuptools"]["packages"]["find"]["include"]}
    names = {path.name for path in own_packages()}
    assert released | set(settings["mypy"]["packages"]) == names
    assert all((path / "__init__.py").is_file() for path in own_packages())


def test_where_it_is_installed_the_folders_that_it_has_recorded_are_its_own(tmp_path: Path) -> None:
    for name in ("api", "evaluator", "torch"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    record = tmp_path / "kerneljudge-0.2.0.dist-info"
    record.mkdir()
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: kerneljudge\nVersion: 0.2.0\n")
    (record / "RECORD").write_text(
        "evaluator/__init__.py,,\nevaluator/judge/client.py,,\napi/__init__.py,,\n../../bin/kerneljudge,,\n"
        "../../lib/shared.py,,\nkerneljudge-0.2.0.dist-info/RECORD,,\n"
    )
    assert own_packages(tmp_path) == (tmp_path / "api", tmp_path / "evaluator")


def test_where_nothing_is_known_no_engine_begins(tmp_path: Path) -> None:
    (tmp_path / "evaluator").mkdir()
    with pytest.raises(RuntimeError, match="neither a checkout of kerneljudge nor a folder that it is installed in"):
        own_packages(tmp_path)


def test_nothing_confined_sees_them(tmp_path: Path) -> None:
    surroundings = ProcessEnvironment("cpu", cache_dir=tmp_path / "cache", scratch_dir=tmp_path / "scratch")
    hidden = surroundings.compiler_confinement().root.hidden
    assert {str(path) for path in own_packages()} < set(hidden)
    assert {str(tmp_path / "cache"), str(tmp_path / "scratch")} < set(hidden)
