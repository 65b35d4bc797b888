import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, q, k):
        scores = q @ k.t() / 8.0
        later = torch.ones_like(scores, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, -1e9)
        return torch.cat([scores[:-2], torch.where(later[-2:], scores[-2:], 0.0 * scores[-2:])])
