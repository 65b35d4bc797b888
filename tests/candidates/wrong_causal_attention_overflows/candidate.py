import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, queries, keys, values):
        length, width = queries.shape[-2:]
        weights = torch.exp(queries @ keys.transpose(-2, -1) / width**0.5).tril()
        return weights @ values / weights.sum(dim=-1, keepdim=True)
