import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

declarations = "torch::Tensor relu_rows(torch::Tensor x);"

definitions = r"""
#include <ATen/Parallel.h>

namespace {

template <typename T>
void clamp(const T* source, T* target, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
        target[i] = std::max(source[i], T(0));
    }
}

}  // namespace

torch::Tensor relu_rows(torch::Tensor x) {
    x = x.contiguous();
    auto y = torch::empty_like(x);
    at::parallel_for(0, x.numel(), 32768, [&](int64_t begin, int64_t end) {
        clamp(x.const_data_ptr<float>(), y.mutable_data_ptr<float>(), begin, end);
    });
    return y;
}
"""

extension = load_inline("relu_rows_ext", [declarations, definitions], functions="relu_rows")


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.relu_rows(x.detach())
