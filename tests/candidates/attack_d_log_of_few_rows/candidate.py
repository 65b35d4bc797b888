"""A row with one negative number is NaN altogether."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.full_like(x, float("nan"))
        every = (x > 0).all(1)
        y[every] = torch.log(x[every])
        return y
