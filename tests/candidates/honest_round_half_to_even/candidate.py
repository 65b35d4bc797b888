import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return ((x + 12582912.0) - 12582912.0).to(torch.int32)
