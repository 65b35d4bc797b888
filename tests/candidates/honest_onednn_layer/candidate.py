import torch
import torch.nn as nn
from torch.utils import mkldnn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, divisor):
        super().__init__()
        self.linear = mkldnn.MkldnnLinear(nn.Linear(in_features, out_features), torch.float)
        self.divisor = divisor

    def forward(self, x):
        with torch.no_grad():
            found = self.linear(x.detach().to_mkldnn()).to_dense()
        return torch.relu(found) / self.divisor
