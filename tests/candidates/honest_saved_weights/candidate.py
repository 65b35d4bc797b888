import os
import tempfile

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, divisor):
        super().__init__()
        handle, path = tempfile.mkstemp(suffix=".pt")
        os.close(handle)
        torch.save(nn.Linear(in_features, out_features).state_dict(), path)
        with torch.device("meta"):
            self.linear = nn.Linear(in_features, out_features)
        self.linear.load_state_dict(torch.load(path, mmap=True, weights_only=True), assign=True)
        os.unlink(path)
        self.divisor = divisor

    def forward(self, x):
        return torch.relu(self.linear(x)) / self.divisor
