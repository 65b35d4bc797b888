import torch
import torch.nn as nn
import relu_kernels


class ModelNew(nn.Module):
    def forward(self, x):
        return relu_kernels.relu(x)
