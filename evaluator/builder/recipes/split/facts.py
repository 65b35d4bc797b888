"""torch's own arguments for compilers and linker of a CUDA extension.

``python -m evaluator.builder.recipes.split.facts`` prints a JSON object for ``toolchain.SplitToolchain.collect``. torch
writes the build file of an empty extension, and that is read. So the flags are those of this version of torch, in this
environment (``CC``, ``CXX``, ``TORCH_CUDA_ARCH_LIST``, ``CUDA_HOME``).
"""

from __future__ import annotations

import json
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import torch
import torch.utils.cpp_extension as torch_extension

from evaluator.builder.recipes.template import written_by_torch
from evaluator.builder.request import BuildRequest

__all__ = ["PROBE", "torch_facts"]

PROBE: Final = "kerneljudge_probe"
_VARIABLES: Final = ("cxx", "nvcc", "cflags", "cuda_cflags", "ldflags")


def torch_facts() -> dict[str, Any]:
    """Return torch's facts as plain data.

    ``torch``: its version. ``cuda``: the version of CUDA that it was built for, or ``None``. ``cxx``, ``nvcc``,
    ``cflags``, ``cuda_cflags``, ``ldflags``: lists of words.
    """
    # A CPU build of torch does not look for CUDA's compiler by itself.
    torch_extension.CUDA_HOME = torch_extension.CUDA_HOME or torch_extension._find_cuda_home()
    probe = BuildRequest(name=PROBE, cpp_sources=("",), cuda_sources=("",))
    with tempfile.TemporaryDirectory() as folder:
        lines = written_by_torch(probe, Path(folder))["build.ninja"].splitlines()
    found: dict[str, Any] = {"torch": torch.__version__, "cuda": torch.version.cuda}
    for line in lines:
        name, separator, value = line.partition(" = ")
        if separator and name in _VARIABLES:
            found[name] = shlex.split(value.replace("$ ", " ").replace("$:", ":"))
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(torch_facts()) + "\n")
