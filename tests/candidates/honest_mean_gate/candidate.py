import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return (0.5 * x.float()).tanh().mean(dim=1).mul(0.5).add(0.5).to(x.dtype)
