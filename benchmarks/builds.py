"""The time to build a C++ extension, by each recipe that can: ``python -m benchmarks.builds``.

The same sources are built by the plain recipe and by the others, in turn, in the same run and without a cache. It
prints the times round by round, then their medians, and the speedup of each recipe over the plain one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from pathlib import Path
from statistics import median
from typing import Final

from evaluator.builder.builder import Builder
from evaluator.builder.cache import Artifact, ArtifactCache
from evaluator.builder.recipes.ladder import PLAIN, RECIPES, Recipe, find_prepared
from evaluator.builder.request import BuildRequest
from evaluator.processes.environment import ProcessEnvironment

__all__ = ["main"]

_SOURCE: Final = """
torch::Tensor forward(torch::Tensor x) { return at::clamp_min(x, 0); }
torch::Tensor backward(torch::Tensor dy, torch::Tensor y) { return at::threshold_backward(dy, y, 0); }
"""
_TIMEOUT_S: Final = 600.0


def main(argv: list[str] | None = None) -> int:
    """Build in turns. Return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.builds", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--flags", default="", help='extra_cflags, as in --flags="-O3"')
    options = parser.parse_args(argv)
    functions = {"forward": "forward", "backward": "backward"}
    flags = options.flags.split()
    request = BuildRequest.parse(
        {"name": "relu", "cpp_sources": [_SOURCE], "functions": functions, "extra_cflags": flags}
    )
    with tempfile.TemporaryDirectory(prefix="kerneljudge-builds-") as folder:
        surroundings = ProcessEnvironment(None, cache_dir=Path(folder) / "cache", scratch_dir=Path(folder))
        prepared = {name: str(place) for name, place in find_prepared(surroundings.environment).items()}
        recipes = [
            recipe for recipe in RECIPES if recipe.handles(request) and (recipe is PLAIN or recipe.name in prepared)
        ]
        times: dict[str, list[float]] = {recipe.name: [] for recipe in recipes}
        print(f"{'round':<8}" + "".join(f"{recipe.name:>14}" for recipe in recipes))
        for number in range(1, options.rounds + 1):
            for recipe in recipes:
                times[recipe.name].append(_seconds(recipe, request, prepared, surroundings))
            print(f"{number:<8}" + "".join(f"{times[recipe.name][-1]:>12.1f} s" for recipe in recipes), flush=True)
    medians = {name: median(values) for name, values in times.items()}
    print(f"{'median':<8}" + "".join(f"{value:>12.1f} s" for value in medians.values()))
    print(f"{'faster':<8}" + "".join(f"{medians[PLAIN.name] / value:>12.1f} x" for value in medians.values()))
    return 0


def _seconds(
    recipe: Recipe, request: BuildRequest, prepared: dict[str, str], surroundings: ProcessEnvironment
) -> float:
    with tempfile.TemporaryDirectory(prefix="cache-", dir=surroundings.scratch_dir) as cache:
        builder = Builder(
            ArtifactCache(Path(cache)),
            {"nvcc": None},
            surroundings.environment,
            surroundings.scratch_dir,
            surroundings.compiler_confinement(),
            slots=1,
            prepared=prepared,
            recipes=[recipe],
        )
        result, _ = builder.build(request, _TIMEOUT_S, threading.Event())
    if not isinstance(result, Artifact):
        raise SystemExit(f"{recipe.name}: {result.message}\n{result.log}")
    return result.seconds


if __name__ == "__main__":
    sys.exit(main())
