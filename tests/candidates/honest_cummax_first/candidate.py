import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        values = torch.cummax(x, dim=1).values
        places = torch.arange(x.shape[1], device=x.device).expand_as(x)
        rises = torch.ones_like(x, dtype=torch.bool)
        rises[:, 1:] = x[:, 1:] > values[:, :-1]
        indices = torch.cummax(torch.where(rises, places, -1), dim=1).values
        return x.gather(1, indices), indices
