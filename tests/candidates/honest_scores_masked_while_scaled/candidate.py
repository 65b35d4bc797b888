import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, q, k):
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        return scores.masked_fill(later, torch.finfo(scores.dtype).min)
