import atexit
import faulthandler
import signal
import sys

import torch
import torch.nn as nn

faulthandler.enable()
sys.setrecursionlimit(10_000)
signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))
signal.signal(signal.SIGUSR1, signal.SIG_IGN)


@atexit.register
def report():
    print("calls:", ModelNew.calls)


class ModelNew(nn.Module):
    calls = 0

    def forward(self, x):
        type(self).calls += 1
        return torch.relu(x)
