from concurrent.futures import ThreadPoolExecutor

import torch
import torch.nn as nn

POOL = ThreadPoolExecutor(max_workers=4, thread_name_prefix="relu")


def clamp_rows(x, y):
    with torch.no_grad():
        torch.clamp(x, min=0, out=y)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.detach()
        y = torch.empty_like(x)
        list(POOL.map(clamp_rows, x.split(16), y.split(16)))
        return y
