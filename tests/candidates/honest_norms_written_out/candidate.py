import torch
import torch.nn as nn
import torch.nn.functional as F


def normalised(x, weight, bias):
    variance, mean = torch.var_mean(x, dim=-1, correction=0, keepdim=True)
    return (x - mean) * torch.rsqrt(variance + 1e-5) * weight + bias


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm_in = nn.LayerNorm(width)
        self.linear = nn.Linear(width, width)
        nn.init.zeros_(self.linear.bias)
        self.norm_out = nn.LayerNorm(width)

    def forward(self, x):
        x = normalised(x, self.norm_in.weight, self.norm_in.bias)
        x = F.relu(torch.addmm(self.linear.bias, x, self.linear.weight.t()))
        return normalised(x, self.norm_out.weight, self.norm_out.bias)
