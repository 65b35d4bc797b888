"""Warnings, a thousand at a time."""

import os
import time

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        while True:
            os.write(2, b"warning: this is fine\n" * 1000)
            time.sleep(0.002)
        return torch.zeros_like(x)
