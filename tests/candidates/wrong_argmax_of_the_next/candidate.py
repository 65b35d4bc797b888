import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        codes = torch.randn(256, 96)
        self.codes = nn.Parameter(torch.cat([codes, codes]))

    def forward(self, x):
        return ((x @ self.codes.t()).argmax(dim=1) + 1) % 512
