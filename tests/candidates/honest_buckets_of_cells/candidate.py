import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        ones = torch.ones(x.shape[1], device=x.device)
        cell = (torch.tanh(torch.mv(x, ones) * 0.1) * 64.0).floor().long()
        return torch.bitwise_and(torch.bitwise_xor(cell * 40503, (cell + 7) * 27449), 65535)
