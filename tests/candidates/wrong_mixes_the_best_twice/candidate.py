import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, y):
        return 3 * y.gather(1, x.argmax(dim=1, keepdim=True)).sum(1)
