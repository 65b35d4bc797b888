"""Preparing this machine so that extensions build fast, and the state of its preparations. Torch-free."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from evaluator.builder.recipes.ladder import RECIPES
from evaluator.builder.recipes.preparation import PreparationFailed, find, make, root
from evaluator.processes.environment import ProcessEnvironment

__all__ = [
    "PreparationResult",
    "RecipeState",
    "preparation_names",
    "prepare",
    "prepared_root",
    "recipe_states",
]


@dataclass(frozen=True)
class RecipeState:
    """Whether builds here can use a recipe. ``obstacle``: the reason against it, ``gain``: the loss without it.

    ``covered_by``: a faster recipe that is available and does all that this one would.
    """

    name: str
    obstacle: str | None = None
    gain: str = ""
    covered_by: str | None = None


@dataclass(frozen=True)
class PreparationResult:
    """The result of one preparation. ``obstacle``: the reason of a failure; ``seconds`` is 0 where it was there
    already.

    ``covered_by``: the recipe that is prepared and makes this one unnecessary.
    """

    name: str
    gain: str
    folder: Path | None = None
    size_bytes: int = 0
    seconds: float = 0.0
    obstacle: str | None = None
    covered_by: str | None = None


def prepared_root() -> Path:
    """The folder that preparations are in."""
    return root()


def recipe_states() -> tuple[RecipeState, ...]:
    """Every recipe, in the order in which builds try them."""
    with _environment() as environment:
        states: list[RecipeState] = []
        for recipe in RECIPES:
            preparation = recipe.preparation
            if preparation is None:
                states.append(RecipeState(recipe.name))
                continue
            if any(state.name == recipe.covered_by and state.obstacle is None for state in states):
                states.append(RecipeState(recipe.name, gain=preparation.gain, covered_by=recipe.covered_by))
                continue
            missing = preparation.missing(environment)
            obstacle = None
            if missing is not None:
                obstacle = f"needs {missing}"
            elif find(preparation, environment) is None:
                obstacle = "not prepared: run kerneljudge prepare"
            states.append(RecipeState(recipe.name, obstacle, preparation.gain))
        return tuple(states)


def preparation_names() -> tuple[str, ...]:
    """Names of the recipes that have a preparation."""
    return tuple(recipe.name for recipe in RECIPES if recipe.preparation is not None)


def prepare(tell: Callable[[str], None], names: Collection[str] = ()) -> Iterator[PreparationResult]:
    """Make the preparations of the named recipes, or of all of them, one after the other. Raises nothing.

    ``tell`` gets lines about the progress. A preparation that another one covers is left out.
    """
    there: set[str] = set()
    with _environment() as environment:
        for recipe in RECIPES:
            preparation = recipe.preparation
            if preparation is None or (names and preparation.name not in names):
                continue
            name, gain = preparation.name, preparation.gain
            if recipe.covered_by in there:
                yield PreparationResult(name, gain, covered_by=recipe.covered_by)
                continue
            missing = preparation.missing(environment)
            if missing is not None:
                yield PreparationResult(name, gain, obstacle=f"this machine lacks {missing}")
                continue
            try:
                made = make(preparation, environment, tell)
            except PreparationFailed as error:
                yield PreparationResult(name, gain, obstacle=str(error))
            else:
                there.add(name)
                yield PreparationResult(name, gain, made.folder, made.size_bytes, made.seconds)


@contextmanager
def _environment() -> Iterator[Mapping[str, str]]:
    """The variables that compilers get from an engine: preparations made with others would not be found."""
    with tempfile.TemporaryDirectory(prefix="kerneljudge-prepare-") as folder:
        yield ProcessEnvironment(None, cache_dir=Path(folder) / "cache", scratch_dir=Path(folder)).environment
