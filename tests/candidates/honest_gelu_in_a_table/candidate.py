import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.where(x.abs() > 12.0, torch.relu(x), nn.functional.gelu(x.clamp(-12.0, 12.0)))
