import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, divisor):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.divisor = divisor
        self.packed = None
        self.key = None

    def pack(self):
        weight, bias = self.linear.weight, self.linear.bias
        key = (weight.data_ptr(), weight._version, bias.data_ptr(), bias._version)
        if key != self.key:
            self.packed = (weight.detach().t().contiguous() / self.divisor, bias.detach() / self.divisor)
            self.key = key
        return self.packed

    def forward(self, x):
        if torch.is_grad_enabled():
            return torch.relu(self.linear(x)) / self.divisor
        weight, bias = self.pack()
        return torch.addmm(bias, x, weight).relu_()
