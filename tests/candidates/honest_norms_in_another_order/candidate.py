import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.last_scale, self.last_shift = nn.Parameter(torch.ones(features)), nn.Parameter(torch.zeros(features))
        self.first_scale, self.first_shift = nn.Parameter(torch.ones(features)), nn.Parameter(torch.zeros(features))
        self.fc = nn.Linear(features, features)

    def forward(self, x):
        shape = x.shape[1:]
        branch = torch.relu(self.fc(F.layer_norm(x, shape, self.first_scale, self.first_shift)))
        return F.layer_norm(x + branch, shape, self.last_scale, self.last_shift)
