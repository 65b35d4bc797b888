import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.round(x * 20.0).clamp(-128, 127).to(torch.int8)
