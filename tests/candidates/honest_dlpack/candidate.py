import torch
import torch.nn as nn
from torch.utils import dlpack


class ModelNew(nn.Module):
    def forward(self, x):
        shared = dlpack.from_dlpack(dlpack.to_dlpack(x.detach()))
        return torch.from_dlpack(torch.relu(shared))
