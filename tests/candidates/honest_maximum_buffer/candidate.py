import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("floor", torch.zeros(1), persistent=False)

    def forward(self, x):
        return torch.maximum(x, self.floor)
