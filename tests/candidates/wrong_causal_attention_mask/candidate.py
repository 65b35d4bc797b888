import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, queries, keys, values):
        length, width = queries.shape[-2:]
        scores = queries @ keys.transpose(-2, -1) / width**0.5
        later = torch.ones(length, length, dtype=torch.bool, device=queries.device).triu(2)
        return torch.softmax(scores.masked_fill(later, float("-inf")), dim=-1) @ values
