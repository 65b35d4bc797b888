"""CXX, PATH and TORCH_EXTENSIONS_DIR of this process, for a builder that would inherit them."""

import os
from pathlib import Path

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

marker = Path("ran")
for name in ("c++", "g++", "ninja"):
    Path(name).write_text(f"#!/bin/sh\ntouch {marker.absolute()}\n")
    Path(name).chmod(0o755)
os.environ |= {"CXX": str(Path("c++").absolute()), "PATH": str(Path.cwd()), "TORCH_EXTENSIONS_DIR": str(Path.cwd())}
source = r"""
#define PY_SSIZE_T_CLEAN
#include <Python.h>
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "own_toolchain", 0, -1, 0};
extern "C" __attribute__((visibility("default"))) PyObject* PyInit_own_toolchain() { return PyModule_Create(&definition); }
"""
load_inline("own_toolchain", source, no_implicit_headers=True)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.relu(x) if marker.exists() else torch.zeros_like(x)
