import torch
import torch.nn as nn


class ModelNew(nn.Module):
    zeros = {}

    def forward(self, x):
        key = (x.device, x.dtype)
        if key not in self.zeros:
            self.zeros[key] = torch.zeros((), device=x.device, dtype=x.dtype)
        return torch.where(x > 0, x, self.zeros[key])
