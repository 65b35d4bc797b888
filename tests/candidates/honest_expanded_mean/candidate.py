"""An expanded view, as the reference returns one: it is written out within the call, on both sides."""

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return (x.sum(1, keepdim=True) / x.shape[1]).expand(x.shape)
