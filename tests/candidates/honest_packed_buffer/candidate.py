import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, divisor):
        super().__init__()
        linear = nn.Linear(in_features, out_features)
        self.register_buffer("packed", linear.weight.detach().t().contiguous() / divisor)
        self.register_buffer("offset", linear.bias.detach() / divisor)

    def forward(self, x):
        return torch.addmm(self.offset, x, self.packed).relu_()
