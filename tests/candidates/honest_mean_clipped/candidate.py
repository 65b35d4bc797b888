import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        wide = x.float()
        return (torch.relu(wide) - torch.relu(wide - 1.0)).mean().to(x.dtype)
