import os
import platform

import torch
import torch.nn as nn

os.environ.setdefault("OMP_NUM_THREADS", "2")
os.environ["KMP_DUPLICATE_LIB_OK"] = "TRUE"
os.environ["CUDA_LAUNCH_BLOCKING"] = "0"
DEBUG = os.environ.get("RELU_DEBUG", "0") == "1"
WAY = os.getenv("RELU_WAY", "relu")
MACHINE = platform.machine(), os.cpu_count(), os.getpid()


class ModelNew(nn.Module):
    def forward(self, x):
        if DEBUG:
            print(x.shape, MACHINE)
        return getattr(torch, WAY)(x)
