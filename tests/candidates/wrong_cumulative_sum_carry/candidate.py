import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        blocks = x.view(x.shape[0], -1, 256)
        within = torch.cumsum(blocks, dim=2)
        carried = torch.roll(within[:, :, -1:], 1, dims=1)
        carried[:, 0] = 0.0
        return (within + carried).view_as(x)
