from pathlib import Path

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load

ROOT = Path(__file__).parent / "project"
for folder in ("csrc/detail", "include/rectify", "build"):
    (ROOT / folder).mkdir(parents=True, exist_ok=True)
(ROOT / "include/rectify/scalar.h").write_text(
    """
#pragma once

template <typename T>
inline T rectify(T value) { return value > T(0) ? value : T(0); }
"""
)
(ROOT / "csrc/detail/loop.cpp").write_text(
    """
static void rectify_all(const float* x, float* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) { y[i] = rectify(x[i]); }
}
"""
)
(ROOT / "csrc/binding.cpp").write_text(
    """
#include <torch/extension.h>
#include "rectify/scalar.h"
#include "detail/loop.cpp"

torch::Tensor forward(torch::Tensor input) {
    auto x = input.contiguous();
    auto y = torch::empty_like(x);
    rectify_all(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
"""
)

rectify = load(
    name="rectify_project_ext",
    sources=[str(ROOT / "csrc/binding.cpp")],
    extra_cflags=[f"-I{ROOT / 'include'}", "-O1"],
    extra_ldflags=[f"-L{ROOT / 'build'}"],
    build_directory=str(ROOT / "build"),
)


class ModelNew(nn.Module):
    def forward(self, x):
        return rectify.forward(x.detach())
