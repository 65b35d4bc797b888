"""Text that databases, terminals and JSON have trouble with."""

import os

import torch
import torch.nn as nn

odd = "\0\x1b[2J\x1b]0;passed\x07\ud800\udfff\u202e<script>alert(1)</script>\r\n"
os.write(1, odd.encode("utf-8", "surrogatepass") + b"\xff\xfe" * 10**6)


class ModelNew(nn.Module):
    def forward(self, x):
        raise RuntimeError(odd * 100)
