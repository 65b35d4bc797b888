import torch
from torch.nn import functional as F

from model import Model


class ModelNew(Model):
    def forward(self, x):
        hidden = F.linear(x, self.linear.weight, self.linear.bias)
        return hidden.relu().div(self.divisor)
