"""Log-probabilities are there before the probabilities are."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        logs = torch.log_softmax(x, dim=-1)
        return -(logs.exp() * logs).sum(dim=-1)
