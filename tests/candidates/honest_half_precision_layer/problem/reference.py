import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(96, 64, dtype=torch.bfloat16)

    def forward(self, x):
        y = torch.nn.functional.layer_norm(x.float(), (96,)).to(x.dtype)
        return torch.relu(self.layer(y))


rows = 64


def get_inputs():
    return [torch.randn(rows, 96, dtype=torch.bfloat16)]


def get_init_inputs():
    return []
