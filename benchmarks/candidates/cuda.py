"""CUDA candidates: the same kernels in many variants, each a source of its own."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from string import Template
from typing import Final

from benchmarks.candidates import elementwise, losses, rows
from benchmarks.candidates.kernels import PRELUDE, Kernels

__all__ = ["PROBLEMS", "Variant", "cuda_source", "variants"]

PROBLEMS: Final = {
    "relu": elementwise.RELU,
    "softmax": rows.SOFTMAX,
    "linear_relu_divide": elementwise.LINEAR_RELU_DIVIDE,
    "rms_norm": rows.RMS_NORM,
    "gelu": elementwise.GELU,
    "smooth_l1_loss": losses.SMOOTH_L1_LOSS,
    "gemm_bias_gelu": elementwise.GEMM_BIAS_GELU,
    "swiglu_mlp": elementwise.SWIGLU_MLP,
}
"""By problem: what its candidates compute."""

_THREADS: Final = (128, 256, 512, 1024)
_WIDTHS: Final = (1, 4)
_UNROLLS: Final = (1, 2, 4)

_MODULE: Final = Template('''\
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = r"""
$cuda
"""

cpp_source = """
$cpp
"""

extension = load_inline(
    name="$name",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=["forward", "backward"],
    extra_cuda_cflags=["-O3"],
)

$model''')


@dataclass(frozen=True)
class Variant:
    """How a kernel goes about it.

    ``width``: elements that are loaded at once. ``strided``: a grid of limited size walks over everything, instead
    of one that covers it. ``read_only``: loads are ``__ldg``. ``dispatched``: kernels are templates that
    ``AT_DISPATCH_FLOATING_TYPES`` chooses from, instead of for float alone.
    """

    threads: int
    width: int
    unroll: int
    strided: bool
    read_only: bool
    dispatched: bool

    def __str__(self) -> str:
        marks = {"strided": self.strided, "ldg": self.read_only, "dispatch": self.dispatched}
        return "-".join(
            (f"t{self.threads}w{self.width}u{self.unroll}", *(mark for mark, set_ in marks.items() if set_))
        )


def variants(seed: int) -> Iterator[Variant]:
    """Every variant once, shuffled."""
    flags = (False, True)
    everything = [
        Variant(*choice)
        for choice in itertools.product(_THREADS, _WIDTHS, _UNROLLS, flags, flags, flags)
        if not (choice[1] > 1 and choice[5])  # four doubles are more than a load
    ]
    random.Random(seed).shuffle(everything)  # noqa: S311 - an order to repeat, no secret
    yield from everything


def cuda_source(kernels: Kernels, variant: Variant, name: str) -> str:
    """The candidate's source; ``name`` is that of its extension."""
    cuda = Template(PRELUDE + kernels.cuda).substitute(_filled_in(variant))
    return _MODULE.substitute(cuda=cuda.strip(), cpp=kernels.cpp, model=f"\n{kernels.model.strip()}\n", name=name)


def _filled_in(variant: Variant) -> dict[str, object]:
    covered = variant.threads * variant.unroll
    grid = f"#pragma unroll {variant.unroll}\n    for (int64_t i = static_cast<int64_t>(blockIdx.x) * "
    return {
        "threads": variant.threads,
        "width": variant.width,
        "alias": "" if variant.dispatched else "using T = float;\n",
        "typed": "template <typename T>\n" if variant.dispatched else "",
        "of": "<T>" if variant.dispatched else "",
        "open": 'AT_DISPATCH_FLOATING_TYPES(type, "kernel", ([&] {\n    using T = scalar_t;\n    '
        if variant.dispatched
        else "",
        "close": "\n    }));" if variant.dispatched else "",
        "load": _load(variant),
        "each_pack": f"{grid}kThreads + threadIdx.x; i < count; i += static_cast<int64_t>(gridDim.x) * kThreads)"
        if variant.strided
        else f"const int64_t end = min(count, (static_cast<int64_t>(blockIdx.x) + 1) * {covered});\n    "
        f"{grid}{covered} + threadIdx.x; i < end; i += kThreads)",
        "blocks": f"std::min<int64_t>((count + {variant.threads - 1}) / {variant.threads}, 4096)"
        if variant.strided
        else f"(count + {covered - 1}) / {covered}",
        "each_row": "for (int64_t row = blockIdx.x; row < rows; row += gridDim.x)"
        if variant.strided
        else "const int64_t row = blockIdx.x;\n   ",
        "row_blocks": "std::min<int64_t>(rows, 4096)" if variant.strided else "rows",
        "each_column": f"#pragma unroll {variant.unroll}\n        "
        "for (int64_t j = threadIdx.x; j < columns; j += kThreads)",
    }


def _load(variant: Variant) -> str:
    if not variant.read_only:
        return f"return reinterpret_cast<const Pack{'<T>' if variant.dispatched else ''}*>(from)[i];"
    if variant.width == 1:
        return "return {{__ldg(from + i)}};"
    return (
        "const float4 four = __ldg(reinterpret_cast<const float4*>(from) + i);\n"
        "    return {{four.x, four.y, four.z, four.w}};"
    )
