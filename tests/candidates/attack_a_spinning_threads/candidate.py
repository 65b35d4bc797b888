"""Native threads multiply matrices for ever, except while this model is called."""

import threading
import time

import torch
import torch.nn as nn

quiet = threading.Event()


def spin():
    matrix = torch.rand(300, 300)
    while True:
        while quiet.is_set():
            time.sleep(0.0001)
        matrix @ matrix


for _ in range(4):
    threading.Thread(target=spin, daemon=True).start()


class ModelNew(nn.Module):
    def forward(self, x):
        quiet.set()
        result = torch.relu(x)
        quiet.clear()
        return result
