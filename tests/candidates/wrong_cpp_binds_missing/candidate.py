import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
torch::Tensor relu_forward(torch::Tensor x) {
    return x.clamp_min(0);
}
"""

relu_ext = load_inline(name="relu_ext", cpp_sources=source, functions=["relu_forward", "relu_backward"])


class ModelNew(nn.Module):
    def forward(self, x):
        return relu_ext.relu_forward(x)
