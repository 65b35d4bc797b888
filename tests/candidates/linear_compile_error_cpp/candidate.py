import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
torch::Tensor epilogue(torch::Tensor x, double divisor) {
    const Tensr y = at::relu(x);
    return y / divisor;
}
"""

extension = load_inline(name="epilogue_cpp", cpp_sources=source, functions=["epilogue"])


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, divisor):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.divisor = divisor

    def forward(self, x):
        return extension.epilogue(self.linear(x), self.divisor)
