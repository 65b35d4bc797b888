import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
torch::Tensor relu_forward(torch::Tensor x, double slope) {
    return torch::where(x > 0, x, x * slope);
}
"""

relu_ext = load_inline(name="relu_slope", cpp_sources=source, functions=["relu_forward"])


class ModelNew(nn.Module):
    def forward(self, x):
        return relu_ext.relu_forward(x)
