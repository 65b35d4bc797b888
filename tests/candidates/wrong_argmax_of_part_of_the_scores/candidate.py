import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        codes = torch.randn(256, 96)
        self.codes = nn.Parameter(torch.cat([codes, codes]))

    def forward(self, x):
        return (x[:, :88] @ self.codes[:, :88].t()).argmax(dim=1)
