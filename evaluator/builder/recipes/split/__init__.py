"""Fast builds of unmodified CUDA sources: the device's side by nvcc, the host's side by clang with precompiled headers.

Torch-free, but for ``facts``, which is a program of its own. ``SplitToolchain.collect`` finds the tools, ``prepare``
precompiles headers once, ``plan`` says whether a request is for this recipe, and ``build`` builds. Each of them raises
``Refused`` where another recipe must do it.
"""

from evaluator.builder.recipes.split.prepare import is_prepared, prepare
from evaluator.builder.recipes.split.recipe import Plan, SplitResult, build, plan
from evaluator.builder.recipes.split.refused import Refused
from evaluator.builder.recipes.split.toolchain import SplitToolchain

__all__ = ["Plan", "Refused", "SplitResult", "SplitToolchain", "build", "is_prepared", "plan", "prepare"]
