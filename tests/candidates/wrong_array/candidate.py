import numpy as np
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return np.maximum(x.detach().cpu().numpy(), 0)
