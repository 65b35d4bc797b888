import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width)
        self.register_buffer("start", self.layer.weight.detach().clone())
        self.shift = nn.Parameter(self.layer.bias.detach().clone(), requires_grad=False)

    def forward(self, x):
        both = torch.cat([self.layer.weight, self.start])
        now, before = torch.tanh(nn.functional.linear(x, both, torch.cat([self.layer.bias, self.shift]))).chunk(2, 1)
        return now.contiguous(), now - before
