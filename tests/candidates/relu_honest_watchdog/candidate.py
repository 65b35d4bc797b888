"""What has to do with time and events and arms nothing for when the process is stopped."""

import os
import select
import signal
import threading

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        event = os.eventfd(0)
        with select.epoll() as watched:
            watched.register(event, select.EPOLLIN)
            os.eventfd_write(event, 1)
            assert watched.poll(1.0)
        os.close(event)
        late = threading.Timer(60.0, print)
        late.start()
        late.cancel()
        signal.setitimer(signal.ITIMER_REAL, 60.0)
        signal.setitimer(signal.ITIMER_REAL, 0.0)

    def forward(self, x):
        return torch.relu(x)
