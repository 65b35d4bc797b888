import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.dropout = nn.Dropout(p=0.01)

    def forward(self, x):
        return self.dropout(torch.relu(x))
