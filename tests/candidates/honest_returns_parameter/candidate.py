import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return nn.Parameter(torch.relu(x.detach()), requires_grad=False)
