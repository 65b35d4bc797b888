import torch
import torch.nn as nn

torch.set_num_threads(1)
try:
    torch.set_num_interop_threads(1)
except RuntimeError:
    # Too late: something has run already.
    pass


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.relu(x)
