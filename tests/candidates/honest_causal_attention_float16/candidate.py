import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, queries, keys, values):
        scores = torch.einsum("bhqd,bhkd->bhqk", queries.float(), keys.float()) / queries.shape[-1] ** 0.5
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        weights = torch.softmax(scores.masked_fill(later, float("-inf")), dim=-1)
        return (weights @ values.float()).to(values.dtype)
