import torch
import torch.nn as nn


class NewModel(nn.Module):
    def forward(self, x):
        return torch.relu(x)
