import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, beta):
        super().__init__()
        self.beta = beta

    def forward(self, predictions, targets):
        each = nn.functional.smooth_l1_loss(predictions, targets, beta=self.beta, reduction="none")
        return each.mean(dim=1).mean()
