import torch

from model import LinearModel


class ModelNew(LinearModel):
    def forward(self, x):
        return torch.relu(self.linear(x)) / self.divisor
