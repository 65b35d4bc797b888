import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        while x.shape[1] > 1:
            half = x.shape[1] // 2
            larger = torch.maximum(x[:, :half], x[:, half : 2 * half])
            x = torch.cat([larger, x[:, 2 * half :]], dim=1)
        return x[:, 0]
