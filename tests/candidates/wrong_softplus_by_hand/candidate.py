import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.log1p(torch.exp(100 * x)) / 100
