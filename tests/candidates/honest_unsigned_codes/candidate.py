import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.to(torch.int32).to(torch.uint16), ((x << 16) | x).to(torch.uint32), ~(x <= 30000)
