"""Takes another number for those weights that are zero, half of all."""

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return -x.abs().clamp(min=1e-12).log()
