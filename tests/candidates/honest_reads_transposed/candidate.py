import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, y):
        columns = x.as_strided((x.shape[1], x.shape[0]), (x.shape[0], 1))
        return columns.cumsum(0).t() + y
