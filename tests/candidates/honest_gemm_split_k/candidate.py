import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        result = a[:, :64] @ b[:64]
        for start in range(64, a.shape[1], 64):
            result = torch.addmm(result, a[:, start : start + 64], b[start : start + 64])
        return result
