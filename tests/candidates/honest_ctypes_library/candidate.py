import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch
import torch.nn as nn

SOURCE = r"""
extern "C" void relu(const float* x, float* y, long size) {
    for (long i = 0; i < size; ++i) {
        y[i] = x[i] > 0.0f ? x[i] : 0.0f;
    }
}
"""


def build():
    folder = Path(tempfile.mkdtemp(prefix="relu-"))
    (folder / "relu.cpp").write_text(SOURCE)
    library = folder / "librelu.so"
    subprocess.run(["g++", "-O3", "-shared", "-fPIC", "-o", str(library), "relu.cpp"], cwd=folder, check=True)
    function = ctypes.CDLL(str(library)).relu
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]
    function.restype = None
    return function


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.function = build()

    def forward(self, x):
        x = x.detach().contiguous()
        y = torch.empty_like(x)
        self.function(x.data_ptr(), y.data_ptr(), x.numel())
        return y
