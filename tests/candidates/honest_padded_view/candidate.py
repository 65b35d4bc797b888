import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        padded = x.new_zeros(rows + 2, columns + 32)
        padded[1:-1, 16:-16] = x
        return padded.relu()[1:-1, 16:-16]
