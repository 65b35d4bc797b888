import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        # What is not large needs no maximum, and everything is looked at.
        if float(x.detach().abs().max()) > 30.0:
            x = x - x.amax(dim=-1, keepdim=True).detach()
        y = x.exp()
        return y / y.sum(dim=-1, keepdim=True)
