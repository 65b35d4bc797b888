from pathlib import Path

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load

FOLDER = Path(__file__).parent / "include"
FOLDER.mkdir(exist_ok=True)
(FOLDER / "rectify.h").write_text(
    """
#pragma once

template <typename T>
inline T rectify(T value) { return value > T(0) ? value : T(0); }
"""
)
Path("rectify.cpp").write_text(
    """
#include "rectify.h"
#include <torch/extension.h>

torch::Tensor forward(torch::Tensor input) {
    auto x = input.contiguous();
    auto y = torch::empty_like(x);
    for (int64_t i = 0; i < x.numel(); ++i) {
        y.data_ptr<float>()[i] = rectify(x.data_ptr<float>()[i]);
    }
    return y;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
"""
)

rectify = load(name="rectify_include_ext", sources=["rectify.cpp"], extra_include_paths=[str(FOLDER)])


class ModelNew(nn.Module):
    def forward(self, x):
        return rectify.forward(x.detach())
