import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, queries, keys):
        scores = torch.einsum("hqd,hkd->hqk", queries * 0.125, keys)
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        return torch.where(later, torch.full_like(scores, -1e9), scores)
