import mmap

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.detach()
        memory = mmap.mmap(-1, x.numel() * x.element_size())
        y = torch.frombuffer(memory, dtype=x.dtype).view(x.shape)
        torch.clamp(x, min=0, out=y)
        return y
