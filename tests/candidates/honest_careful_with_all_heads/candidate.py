import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, queries, keys, values):
        length, width = queries.shape[-2:]
        scores = queries @ keys.transpose(-2, -1) / width**0.5
        later = torch.ones(length, length, dtype=torch.bool, device=queries.device).triu(1)
        scores = scores.masked_fill(later, float("-inf"))
        scores = scores - scores.amax(dim=-1, keepdim=True).detach()
        weights = scores.exp()
        return weights / weights.sum(dim=-1, keepdim=True) @ values
