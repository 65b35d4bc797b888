import torch
import torch.nn as nn

torch.autograd.set_detect_anomaly(True)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.relu(x)
