import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        image = x.view(x.shape[0], 16, 32, -1).to(memory_format=torch.channels_last)
        y = torch.relu(image)
        return y.contiguous(memory_format=torch.contiguous_format).view_as(x)
