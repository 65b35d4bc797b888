import torch
import torch.nn as nn
import torch.nn.functional as F

# float32 means float32, in the backward pass as well.
torch.backends.cudnn.allow_tf32 = False


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, divisor):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.divisor = divisor

    def forward(self, x):
        z = F.conv1d(x.unsqueeze(-1), self.linear.weight.unsqueeze(-1), self.linear.bias)
        return z.squeeze(-1).relu() / self.divisor
