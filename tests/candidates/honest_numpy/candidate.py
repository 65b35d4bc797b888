import numpy as np
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.from_numpy(np.maximum(x.detach().numpy(), np.float32(0)))
