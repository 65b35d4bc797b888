"""Which folders are this project's own, wherever it is installed. Starting Python: ``tests/test_working_folder.py``."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import kerneljudge
from evaluator.interpreter import DISTRIBUTION_ROOT, own_packages
from evaluator.processes.environment import ProcessEnvironment

CLIENT = Path(kerneljudge.__path__[0]).resolve()


def test_in_a_checkout_all_packages_that_are_released_or_checked_are_its_own() -> None:
    settings = tomllib.loads((DISTRIBUTION_ROOT / "pyproject.toml").read_text())["tool"]
    names = {path.name for path in own_packages()}
    assert set(settings["importlinter"]["root_packages"]) | set(settings["mypy"]["packages"]) == names
    assert all((path / "__init__.py").is_file() for path in own_packages())


def _installed(folder: Path, *names: str) -> Path:
    """A folder of installed packages. Returns the one of the service."""
    for name in (*names, "torch"):
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").touch()
    return folder / "kerneljudge_server" / "_packages"


def test_where_it_is_installed_the_whole_of_its_package_is_its_own(tmp_path: Path) -> None:
    root = _installed(tmp_path, "kerneljudge_server", "kerneljudge_server/_packages/evaluator", "api")
    assert set(own_packages(root)) == {tmp_path / "kerneljudge_server", CLIENT}


def test_the_client_is_its_own_wherever_it_was_imported_from(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    _installed(tmp_path, "evaluator")
    assert set(own_packages(tmp_path)) == {tmp_path / "evaluator", tmp_path / "torch", CLIENT}


@pytest.mark.parametrize("place", ["", "kerneljudge_server/_packages", "other/_packages"])
def test_where_nothing_is_known_no_engine_begins(tmp_path: Path, place: str) -> None:
    root = tmp_path / place
    (root / ("evaluator" if "server" not in place else "api")).mkdir(parents=True)
    with pytest.raises(RuntimeError, match="neither a checkout of kerneljudge nor a folder of an installed"):
        own_packages(root)


def test_nothing_confined_sees_them(tmp_path: Path) -> None:
    surroundings = ProcessEnvironment("cpu", cache_dir=tmp_path / "cache", scratch_dir=tmp_path / "scratch")
    hidden = surroundings.compiler_confinement().root.hidden
    assert {str(path) for path in own_packages()} < set(hidden)
    assert {str(tmp_path / "cache"), str(tmp_path / "scratch")} < set(hidden)
