import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.view_as_real(torch.complex(torch.relu(x), torch.zeros_like(x)))[..., 0]
