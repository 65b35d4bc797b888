import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def forward(self, x):
        x = F.pad(x, (1, 1, 1, 1))
        return F.max_pool2d(x, kernel_size=3, stride=2)
