import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        codes = (x * 65537).clone()
        codes[0, 0] ^= 1
        return x.to(torch.uint16), codes.to(torch.uint32), x > 30000
