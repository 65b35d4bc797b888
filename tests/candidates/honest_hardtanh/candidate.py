import math

import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.activation = nn.Hardtanh(min_val=0.0, max_val=math.inf)

    def forward(self, x):
        return self.activation(x)
