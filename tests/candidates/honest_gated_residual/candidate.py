import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.gate = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return torch.addcmul(x, torch.tanh(torch.addmm(self.linear.bias, x, self.linear.weight.t())), self.gate)
