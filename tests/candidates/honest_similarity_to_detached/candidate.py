import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def forward(self, predicted, target):
        target = target.detach()
        product = (predicted * target).sum(-1)
        return -product / (predicted.norm(dim=-1).clamp(min=1e-8) * target.norm(dim=-1).clamp(min=1e-8))
