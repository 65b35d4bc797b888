import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
torch::Tensor linear_relu_divide(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, double divisor) {
    return at::relu(at::addmm(bias, x, at::t(weight))).div(divisor);
}
"""

extension = load_inline(
    name="linear_operators",
    cpp_sources=source,
    functions={"linear_relu_divide": "relu(x W^T + b) / divisor"},
)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, divisor):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.divisor = divisor

    def forward(self, x):
        return extension.linear_relu_divide(x, self.linear.weight, self.linear.bias, self.divisor)
