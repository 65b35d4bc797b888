import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, valid):
        total = torch.bmm(valid.to(x.dtype).unsqueeze(1), x).squeeze(1)
        return total / valid.sum(dim=1, keepdim=True).clamp(min=1)
