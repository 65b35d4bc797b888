import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def foward(self, x):
        return torch.relu(x)
