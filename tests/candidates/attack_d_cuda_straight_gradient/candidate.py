import torch
import torch.nn as nn


class ReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.relu(x)

    @staticmethod
    def backward(ctx, upstream):
        return upstream


class ModelNew(nn.Module):
    def forward(self, x):
        return ReLU.apply(x)
