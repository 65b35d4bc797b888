import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, dtype=torch.complex64))

    def forward(self, x):
        return torch.fft.fft(torch.fft.ifft(x) * self.weight).conj()
