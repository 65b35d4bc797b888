"""Never comes to its end."""

import torch
import torch.nn as nn
while True:
    pass


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.zeros_like(x)
