import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        codes = torch.randn(256, 96)
        self.codes = nn.Parameter(torch.cat([codes, codes]))

    def forward(self, x):
        parts = zip(x.split(32, 1), self.codes.split(32, 1))
        scores = sum(part @ codes.t() for part, codes in parts)
        return scores.shape[1] - 1 - scores.flip(1).argmax(dim=1)
