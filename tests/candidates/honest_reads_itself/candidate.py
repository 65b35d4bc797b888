import hashlib
import inspect
from pathlib import Path

import torch
import torch.nn as nn

SOURCE = Path(__file__).resolve()
VERSION = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]


class ModelNew(nn.Module):
    version = VERSION

    def __init__(self):
        super().__init__()
        assert "def forward" in inspect.getsource(type(self))

    def forward(self, x):
        return torch.relu(x)
