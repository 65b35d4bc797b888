import torch
import torch.nn as nn


@torch.jit.script
def fused_relu(x: torch.Tensor, floor: float) -> torch.Tensor:
    if x.numel() == 0:
        return x.clone()
    return torch.clamp(x, min=floor)


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.floor = 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return fused_relu(x, self.floor)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.jit.script(Inner())

    def forward(self, x):
        return self.inner(x)
