import torch
from torch import nn


class FastReLU(nn.Module):
    def forward(self, x):
        return torch.clamp_min(x, 0.0)


Candidate = FastReLU
ModelNew: type[nn.Module] = Candidate
