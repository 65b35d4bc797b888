import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(96, 128)

    def forward(self, x):
        return torch.relu(self.layer(x)) >= 0
