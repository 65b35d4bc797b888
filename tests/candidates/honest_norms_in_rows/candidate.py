import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm_in, self.norm_out = self.norm(width), self.norm(width)
        self.linear = nn.Linear(width, width)
        self.linear.bias = nn.Parameter(torch.zeros(1, width))

    @staticmethod
    def norm(width):
        return nn.ParameterDict({"weight": torch.ones(1, width), "bias": torch.zeros(1, width)})

    def forward(self, x):
        x = F.layer_norm(x, x.shape[-1:]) * self.norm_in["weight"] + self.norm_in["bias"]
        x = torch.relu(x @ self.linear.weight.t() + self.linear.bias)
        return F.layer_norm(x, x.shape[-1:]) * self.norm_out["weight"] + self.norm_out["bias"]
