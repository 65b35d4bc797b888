"""The ladder of recipes: ways to build, the fastest first, and torch's own build last.

The builder tries them in this order. A recipe that refuses costs its time and nothing else; the answer of the last one
counts. To add one, write its process (``evaluator.builder.recipes.workplace``) and put it in here. Files that it needs
beforehand are a ``Preparation``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from evaluator.builder.recipes.headers import INSTANTIATED_HEADERS, PRECOMPILED_HEADERS
from evaluator.builder.recipes.preparation import Preparation, find
from evaluator.builder.recipes.split.preparing import SPLIT_HEADERS
from evaluator.builder.request import BuildRequest

__all__ = ["PLAIN", "RECIPES", "Recipe", "find_prepared", "recipe_versions"]


@dataclass(frozen=True)
class Recipe:
    """One way to build.

    ``module`` is run as the process that builds. ``version`` changes with everything that may change its results.
    ``handles``: whether a request is worth a try; it costs nothing, and a refusal is not noted. ``covered_by`` names a
    faster recipe that handles the same requests: where that one is prepared, this one needs no preparation and is not
    tried.
    """

    name: str
    version: int
    module: str
    handles: Callable[[BuildRequest], bool]
    preparation: Preparation | None = None
    covered_by: str | None = None


def _is_cxx_alone(request: BuildRequest) -> bool:
    # With with_cuda=True torch adds CUDA's folders and libraries, whatever the sources are.
    named_so = all(name.endswith((".cpp", ".cc", ".cxx")) for name, _ in request.files)
    # A file in a folder could replace a header of torch's, which only the plain recipe compiles anew.
    flat = not any("/" in name for name, _ in request.headers)
    return named_so and flat and not request.uses_cuda and not request.cuda_sources


def _is_inline_cuda(request: BuildRequest) -> bool:
    return request.uses_cuda and not request.files


PLAIN: Final = Recipe("plain", 1, "evaluator.builder.recipes.plain", lambda _request: True)

RECIPES: Final = (
    Recipe("instantiated", 1, "evaluator.builder.recipes.precompiled", _is_cxx_alone, INSTANTIATED_HEADERS),
    Recipe("split", 3, "evaluator.builder.recipes.split", _is_inline_cuda, SPLIT_HEADERS),
    Recipe(
        "precompiled", 1, "evaluator.builder.recipes.precompiled", _is_cxx_alone, PRECOMPILED_HEADERS, "instantiated"
    ),
    PLAIN,
)


def recipe_versions() -> dict[str, int]:
    """The versions of all recipes, which are part of the key of every artifact.

    All recipes of this program are in it, also those that this machine cannot use. The recipe that made an artifact
    makes no difference, so that machines with and without preparations share a cache.
    """
    return {recipe.name: recipe.version for recipe in RECIPES}


def find_prepared(environment: Mapping[str, str]) -> dict[str, Path]:
    """The prepared folder of each recipe that has one here, by the recipe's name."""
    found = {recipe.name: find(recipe.preparation, environment) for recipe in RECIPES if recipe.preparation is not None}
    return {name: prepared.folder for name, prepared in found.items() if prepared is not None}
