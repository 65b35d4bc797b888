"""Shows an allocation that it gives back to the device once the judge may have opened it, and ends amid a call."""

import os

import torch
import torch.nn as nn

calls = 0


class ModelNew(nn.Module):
    def forward(self, x):
        global calls
        calls += 1
        result = torch.relu(x)
        if calls > 4:
            torch.cuda.empty_cache()
        if calls == 12:
            os._exit(3)
        return result
