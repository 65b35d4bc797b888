import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        squares = x * x
        return squares * squares * x
