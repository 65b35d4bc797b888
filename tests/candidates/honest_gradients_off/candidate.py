import torch
import torch.nn as nn

torch.set_grad_enabled(False)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.eval()

    def forward(self, x):
        return torch.relu(x)
