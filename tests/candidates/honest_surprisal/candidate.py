"""The epsilon of float32 as a number of its own."""

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.abs().add(2.0**-23).log().neg()
