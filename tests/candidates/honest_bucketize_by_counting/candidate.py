import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        bounds = torch.arange(-16, 17, device=x.device) / 8.0
        return (bounds < x[..., None]).sum(-1)
