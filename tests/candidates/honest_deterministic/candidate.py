import torch
import torch.nn as nn

torch.use_deterministic_algorithms(True, warn_only=True)
torch.backends.cudnn.benchmark = False


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.clamp_min(x, 0)
