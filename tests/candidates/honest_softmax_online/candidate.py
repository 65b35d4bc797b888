import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        highest = torch.full_like(x[:, :1], float("-inf"))
        total = torch.zeros_like(highest)
        for block in x.split(256, dim=1):
            higher = torch.maximum(highest, block.detach().amax(dim=1, keepdim=True))
            total = total * torch.exp(highest - higher) + torch.exp(block - higher).sum(dim=1, keepdim=True)
            highest = higher
        return torch.exp(x - highest) / total
