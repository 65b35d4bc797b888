import torch
import torch.nn as nn
import torch.nn.functional as F


class FusedNorm(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale_shift = nn.Parameter(torch.stack([torch.ones(channels), torch.zeros(channels)]))

    def _load_from_state_dict(self, state, prefix, *rest):
        if prefix + "weight" in state:
            state[prefix + "scale_shift"] = torch.stack([state.pop(prefix + "weight"), state.pop(prefix + "bias")])
        super()._load_from_state_dict(state, prefix, *rest)

    def forward(self, x):
        return F.silu(F.group_norm(x, 4, self.scale_shift[0], self.scale_shift[1]))


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = FusedNorm(channels)

    def forward(self, x):
        return self.norm(x)
