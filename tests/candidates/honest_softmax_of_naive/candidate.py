"""The largest score of each row is taken off before exponentials are: they overflow nowhere."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        scores = torch.exp(x - x.amax(dim=-1, keepdim=True))
        return scores / scores.sum(dim=-1, keepdim=True)
