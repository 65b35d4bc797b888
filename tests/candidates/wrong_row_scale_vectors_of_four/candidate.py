import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(dim) + 0.5)

    def forward(self, x):
        whole = x.shape[1] // 4 * 4
        mean = x.abs().mean(dim=1, keepdim=True)
        return torch.cat([x[:, :whole] * self.weight[:whole] / (1 + mean), x[:, whole:]], dim=1)
