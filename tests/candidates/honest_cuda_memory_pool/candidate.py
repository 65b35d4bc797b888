import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool = None

    def forward(self, x):
        if self.pool is None:
            self.pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(self.pool):
            return torch.relu(x)
