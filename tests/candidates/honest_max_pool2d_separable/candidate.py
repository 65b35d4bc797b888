import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def forward(self, x):
        x = F.pad(x, (1, 2, 1, 2), value=float("-inf"))
        rows = (x.shape[2] - 2) // 2
        columns = (x.shape[3] - 2) // 2
        x = torch.maximum(torch.maximum(x[:, :, :-2:2], x[:, :, 1:-1:2]), x[:, :, 2::2])[:, :, :rows]
        return torch.maximum(torch.maximum(x[..., :-2:2], x[..., 1:-1:2]), x[..., 2::2])[..., :columns]
