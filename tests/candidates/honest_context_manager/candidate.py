import contextlib
import time

import torch
import torch.nn as nn


class Profile:
    calls = 0
    seconds = 0.0


@contextlib.contextmanager
def profiled(profile):
    start = time.perf_counter()
    try:
        yield profile
    finally:
        profile.calls += 1
        profile.seconds += time.perf_counter() - start


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.profile = Profile()

    def forward(self, x):
        with profiled(self.profile):
            return torch.relu(x)
