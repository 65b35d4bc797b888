import statistics
import time

import torch
import torch.nn as nn

WAYS = {
    "relu": torch.relu,
    "clamp": lambda x: torch.clamp(x, min=0.0),
    "where": lambda x: torch.where(x > 0, x, torch.zeros_like(x)),
}


def wait(x):
    if x.is_cuda:
        torch.cuda.synchronize()


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.chosen = {}

    @torch.no_grad()
    def tune(self, x):
        medians = {}
        for name, way in WAYS.items():
            times = []
            for _ in range(5):
                wait(x)
                start = time.perf_counter()
                way(x)
                wait(x)
                times.append(time.perf_counter() - start)
            medians[name] = statistics.median(times)
        return min(medians, key=medians.get)

    def forward(self, x):
        key = (x.shape, x.device.type)
        if key not in self.chosen:
            self.chosen[key] = self.tune(x.detach())
        return WAYS[self.chosen[key]](x)
