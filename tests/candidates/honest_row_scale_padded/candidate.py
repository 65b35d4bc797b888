import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(dim) + 0.5)

    def forward(self, x):
        padded = nn.functional.pad(x, (0, -x.shape[1] % 4))
        total = padded.abs().view(x.shape[0], -1, 4).sum(dim=(1, 2))
        return x * self.weight / (1 + total[:, None] / x.shape[1])
