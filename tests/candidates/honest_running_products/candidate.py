import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        blocks = torch.cumprod(x.unflatten(1, (-1, 64)), dim=2)
        before = torch.cumprod(blocks[:, :, -1], dim=1)
        before = torch.cat([torch.ones_like(before[:, :1]), before[:, :-1]], dim=1)
        return (blocks * before[:, :, None]).flatten(1)
