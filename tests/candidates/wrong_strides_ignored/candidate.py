import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        transposed = torch.relu(x).t()
        storage = torch.as_strided(transposed, transposed.shape, (transposed.shape[1], 1))
        return storage.t()
