import torch
import torch.nn as nn
import torch.nn.functional as F

major, minor = (int(part) for part in torch.__version__.split(".")[:2])

if (major, minor) >= (2, 3):

    class ModelNew(nn.Module):
        def forward(self, x):
            return F.relu(x, inplace=False)

else:

    class ModelNew(nn.Module):
        def forward(self, x):
            return x.clamp(min=0)
