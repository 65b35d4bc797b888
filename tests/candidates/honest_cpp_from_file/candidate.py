from pathlib import Path

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load

FOLDER = Path(__file__).parent / "csrc"
FOLDER.mkdir(exist_ok=True)
SOURCE = FOLDER / "relu.cpp"
SOURCE.write_text(
    """
#include <torch/extension.h>

torch::Tensor forward(const torch::Tensor& x) { return torch::clamp_min(x, 0); }

torch::Tensor backward(const torch::Tensor& dy, const torch::Tensor& y) {
    return at::threshold_backward(dy, y, 0);
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.def("forward", &forward, "ReLU");
    m.def("backward", &backward, "its derivative");
}
"""
)

relu_ext = load(name="relu_from_file", sources=[str(SOURCE)], extra_cflags=["-O2"], verbose=False)


class ReLUFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = relu_ext.forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        return relu_ext.backward(dy, *ctx.saved_tensors)


class ModelNew(nn.Module):
    def forward(self, x):
        return ReLUFunction.apply(x)
