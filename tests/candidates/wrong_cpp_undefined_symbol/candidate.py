import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
void relu_kernel(const float* x, float* y, int64_t size);

torch::Tensor relu_forward(torch::Tensor x) {
    auto y = torch::empty_like(x);
    relu_kernel(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}
"""

relu_ext = load_inline(name="relu_undefined", cpp_sources=source, functions=["relu_forward"])


class ModelNew(nn.Module):
    def forward(self, x):
        return relu_ext.relu_forward(x)
