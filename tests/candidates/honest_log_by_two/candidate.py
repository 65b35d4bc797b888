import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.log2(x) * 0.6931471805599453
