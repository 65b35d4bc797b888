import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        free, total = torch.cuda.mem_get_info()
        y = torch.relu(x)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        self.used = total - free, torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()
        return y
