"""The preparation of the split recipe for ``kerneljudge prepare``. Torch-free."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from evaluator.builder.recipes.preparation import Preparation, PreparationFailed, Tell, ask_torch, toolchain_facts
from evaluator.builder.recipes.split.prepare import prepare
from evaluator.builder.recipes.split.refused import Refused
from evaluator.builder.recipes.split.toolchain import SplitToolchain, find_clang
from evaluator.devices.discovery import compiler_versions, cuda_architectures, nvcc_path

__all__ = ["SPLIT_HEADERS", "load_toolchain"]

_MADE: Final = 2
"""Changes with the prepared files or their making: files of an older kerneljudge are then made anew."""
_TOOLCHAIN_FILE: Final = "toolchain.json"
_TOOLS: Final = ("ar", "objcopy", "c++filt")


def load_toolchain(prepared: Path) -> SplitToolchain:
    """Load the toolchain that ``prepared`` was made for. Raises ``OSError``, ``ValueError`` and ``KeyError``."""
    return SplitToolchain.from_json(json.loads((prepared / _TOOLCHAIN_FILE).read_text()))


def _missing(environment: Mapping[str, str]) -> str | None:
    if nvcc_path() is None:
        return "nvcc"
    if find_clang(environment) is None:
        return "clang++ (Debian and Ubuntu: clang-19)"
    return next((tool for tool in _TOOLS if shutil.which(tool, path=environment.get("PATH")) is None), None)


def _facts(environment: Mapping[str, str]) -> dict[str, Any]:
    clang, mold = find_clang(environment), shutil.which("mold", path=environment.get("PATH"))
    return {
        **toolchain_facts(environment),
        "made": _MADE,
        "architectures": cuda_architectures(),
        "nvcc": compiler_versions()["nvcc"],
        **{name: None if tool is None else _identity(tool) for name, tool in (("clang", clang), ("mold", mold))},
    }


def _identity(tool: str) -> list[Any]:
    """Identify a tool's file: another version of a tool is another file."""
    path = Path(tool).resolve()
    status = path.stat()
    return [str(path), status.st_size, int(status.st_mtime)]


def _make(folder: Path, environment: Mapping[str, str], tell: Tell) -> None:
    try:
        asking = {**environment, "TORCH_CUDA_ARCH_LIST": cuda_architectures()}
        toolchain = SplitToolchain.collect(ask_torch("evaluator.builder.recipes.split.facts", asking), environment)
        tell(f"torch's headers for CUDA's host side, for {' and '.join(toolchain.standards)}: some minutes")
        made = prepare(toolchain, folder)
        for standard in toolchain.standards:
            if standard not in made:
                tell(f"torch's headers do not allow {standard}: extensions that name it build as torch would")
    except Refused as error:
        raise PreparationFailed(str(error)) from error
    (folder / _TOOLCHAIN_FILE).write_text(json.dumps(toolchain.to_json()))


SPLIT_HEADERS: Final = Preparation(
    name="split",
    gain="CUDA extensions build an order of magnitude faster",
    missing=_missing,
    facts=_facts,
    make_in=_make,
)
