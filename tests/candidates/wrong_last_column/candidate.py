import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        y = x.clone()
        y[:, : x.shape[1] - 1].clamp_(min=0)
        return y
