import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.floor(x + 0.5).to(torch.int32)
