import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(dim) + 0.5)

    def forward(self, x):
        width = 1 << (x.shape[1] - 1).bit_length()
        total = nn.functional.pad(x.abs(), (0, width - x.shape[1]))
        while total.shape[1] > 1:
            total = total[:, : total.shape[1] // 2] + total[:, total.shape[1] // 2 :]
        return x * self.weight / (1 + total / x.shape[1])
