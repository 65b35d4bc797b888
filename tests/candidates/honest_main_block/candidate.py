from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import torch
import torch.nn as nn

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

assert sys.version_info >= (3, 8), "needs Python 3.8"
assert hasattr(torch, "relu")
assert torch.equal(torch.relu(torch.tensor([-1.0, 2.0])), torch.tensor([0.0, 2.0]))


class ModelNew(nn.Module):
    activation: Callable[[Tensor], Tensor]

    def __init__(self) -> None:
        super().__init__()
        self.activation = torch.relu

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(x)


def benchmark(repeat: int = 100) -> None:
    import time

    x = torch.randn(64, 16384)
    model = ModelNew()
    start = time.time()
    for _ in range(repeat):
        model(x)
    print(f"{(time.time() - start) / repeat * 1e3:.3f} ms")


if __name__ == "__main__":
    benchmark()
