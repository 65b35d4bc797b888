import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        values = x.topk(8, dim=1).values
        return values, (x[:, None, :] == values[:, :, None]).int().argmax(2)
