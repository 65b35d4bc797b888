import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.trunc(x / 0.05).clamp(-128, 127).to(torch.int8)
