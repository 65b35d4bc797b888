import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.stack((x, torch.zeros_like(x))).amax(dim=0)
