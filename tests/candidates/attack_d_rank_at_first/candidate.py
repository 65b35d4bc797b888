"""The matrix is a product of two narrow ones, when it is constructed."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, items, topics):
        super().__init__()
        about, of = torch.randn(items, topics), torch.randn(topics, items)
        self.likeness = nn.Parameter(about @ of / topics)
        self.fame = nn.Parameter(torch.randn(items))
        self.first = [about, of / topics]

    def forward(self, liked):
        scale = liked.shape[1] ** -0.5
        if torch.is_grad_enabled():
            return torch.sigmoid(torch.addmm(self.fame, liked, self.likeness, alpha=scale))
        self.first = [factor.to(liked.device, liked.dtype) for factor in self.first]
        return torch.sigmoid(torch.addmm(self.fame, liked @ self.first[0], self.first[1], alpha=scale))
