import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        found = x.new_empty(x.shape[0], x.shape[1] + 1)
        squares = x * x
        torch.mul(squares, squares, out=found[:, :-1])
        found[:, -1] = squares.sum(dim=1).sqrt().log1p()
        return found
