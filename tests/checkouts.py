"""Checkouts of problems in KernelBench's form, made for tests: one oddity each."""

from __future__ import annotations

from pathlib import Path

__all__ = ["REFERENCE", "reference", "write_published"]

REFERENCE = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    \"\"\"
    {title}.

    Not part of the description.
    \"\"\"

    def __init__(self{parameters}):
        super().__init__()
        {init}

    def forward(self, {arguments}):
        {forward}


{sizes}


def get_inputs():
    {draw}return [{inputs}]


def get_init_inputs():
    return {init_inputs}
"""


def reference(
    forward: str,
    *,
    init: str = "pass",
    arguments: str = "x",
    inputs: str = "torch.rand(batch_size, features)",
    sizes: str = "batch_size = 64\nfeatures = 2048",
    draw: str = "",
    parameters: str = "",
    init_inputs: str = "[]",
) -> str:
    """The source of a problem; ``forward`` and ``init`` are bodies of methods."""
    drawn = f"{draw}\n    " if draw else ""
    return REFERENCE.format(
        title="Does as it is told", parameters=parameters, init=init, arguments=arguments, forward=forward,
        sizes=sizes, draw=drawn, inputs=inputs, init_inputs=init_inputs,
    )  # fmt: skip


def write_published(checkout: Path, level: int, name: str, source: str) -> Path:
    """Put ``source`` where KernelBench has the problem of that name; ``name`` begins with its number."""
    folder = checkout / "KernelBench" / f"level{level}"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.py"
    path.write_text(source, encoding="utf-8")
    return path
