"""A missing header in a file that claims to be the toolkit's is not the candidate's fault: another machine may do."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#line 1 "/usr/include/toolkit.h"
#include "no_such_header.h"
"""
extension = load_inline("blames_the_toolkit", source, no_implicit_headers=True)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.zeros_like(x)
