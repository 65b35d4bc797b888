import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, dtype=torch.complex64))

    def forward(self, x):
        return torch.fft.fft(torch.fft.ifft(x) * self.weight)


rows = 64


def get_inputs():
    return [torch.randn(rows, 64, dtype=torch.complex64)]


def get_init_inputs():
    return []
