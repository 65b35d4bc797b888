import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        columns_first = x.t().contiguous()
        return torch.relu(columns_first).t()
