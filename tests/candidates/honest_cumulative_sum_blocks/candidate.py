import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        blocks = x.view(x.shape[0], -1, 32)
        triangle = torch.ones(32, 32, dtype=x.dtype, device=x.device).triu()
        within = blocks @ triangle
        totals = within[:, :, -1]
        carried = torch.cumsum(totals, dim=1) - totals
        return (within + carried.unsqueeze(-1)).view_as(x)
