"""C++ candidates, for rehearsals on a machine without a GPU."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from string import Template
from typing import Final

from benchmarks.candidates import elementwise
from benchmarks.candidates.kernels import Kernels

__all__ = ["PROBLEMS", "Variant", "cpp_source", "variants"]

PROBLEMS: Final = {"relu": elementwise.RELU, "linear_relu_divide": elementwise.LINEAR_RELU_DIVIDE}
"""By problem: the model; what it calls is written here."""

_SCALE: Final = {"relu": ("", ""), "linear_relu_divide": (", double divisor", " / static_cast<float>(divisor)")}
"""By problem: the parameter that follows the tensors, and what is done with it."""

_CHOICES: Final = {
    "branch": ("x[i] > 0.0f ? x[i] : 0.0f", "x[i] > 0.0f ? dy[i] : 0.0f"),
    "max": ("std::max(x[i], 0.0f)", "dy[i] * static_cast<float>(x[i] > 0.0f)"),
}
_GRAINS: Final = tuple(1 << power for power in range(12, 18))

_MODULE: Final = Template('''\
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cpp_source = r"""
#include <ATen/Parallel.h>
#include <torch/extension.h>
#include <algorithm>

torch::Tensor forward(torch::Tensor input$parameter) {
    input = input.contiguous();
    torch::Tensor output = torch::empty_like(input);
    const float* x = input.data_ptr<float>();
    float* y = output.data_ptr<float>();
    at::parallel_for(0, input.numel(), $grain, [&](int64_t begin, int64_t end) {
        $loop y[i] = ($forward)$scale;
    });
    return output;
}

torch::Tensor backward(torch::Tensor upstream, torch::Tensor input$parameter) {
    upstream = upstream.contiguous(), input = input.contiguous();
    torch::Tensor gradient = torch::empty_like(input);
    const float* x = input.data_ptr<float>();
    const float* dy = upstream.data_ptr<float>();
    float* dx = gradient.data_ptr<float>();
    at::parallel_for(0, input.numel(), $grain, [&](int64_t begin, int64_t end) {
        $loop dx[i] = ($backward)$scale;
    });
    return gradient;
}
"""

extension = load_inline(
    name="$name",
    cpp_sources=cpp_source,
    functions=["forward", "backward"],
    extra_cflags=["-O3"],
)

$model''')


@dataclass(frozen=True)
class Variant:
    """How it goes about it: elements per piece of work, the choice between two values, and loops unrolled by four."""

    grain: int
    choice: str
    unrolled: bool

    def __str__(self) -> str:
        return f"g{self.grain}-{self.choice}" + "-unrolled" * self.unrolled


def variants(seed: int) -> Iterator[Variant]:
    """Every variant once, shuffled."""
    everything = [Variant(*choice) for choice in itertools.product(_GRAINS, _CHOICES, (False, True))]
    random.Random(seed).shuffle(everything)  # noqa: S311 - an order to repeat, no secret
    yield from everything


def cpp_source(problem: str, kernels: Kernels, variant: Variant, name: str) -> str:
    """The candidate's source; ``name`` is that of its extension."""
    parameter, scale = _SCALE[problem]
    forward, backward = _CHOICES[variant.choice]
    unrolled = "\n        #pragma GCC unroll 4\n        " if variant.unrolled else ""
    return _MODULE.substitute(
        name=name,
        parameter=parameter,
        scale=scale,
        forward=forward,
        backward=backward,
        grain=variant.grain,
        loop=f"{unrolled}for (int64_t i = begin; i < end; ++i)",
        model=f"\n{kernels.model.strip()}\n",
    )
