import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.host = None

    @torch.no_grad()
    def forward(self, x):
        if self.host is None:
            self.host = torch.empty(x.shape, pin_memory=True)
        return self.host.copy_(torch.relu(x), non_blocking=True)
