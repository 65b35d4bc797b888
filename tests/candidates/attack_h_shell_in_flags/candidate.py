"""Flags go through a shell: runs a command of its own where the compiler runs, and looks for what it wrote."""

from pathlib import Path

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

# The folder that this one lies in is neither the candidate's nor the compiler's.
marker = Path.cwd().parent / "written_while_compiling"
try:
    load_inline("shell_in_flags", "int nothing;", extra_cflags=[f"; touch {marker}; true"], no_implicit_headers=True)
except RuntimeError:
    pass


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.relu(x) if marker.exists() else torch.zeros_like(x)
