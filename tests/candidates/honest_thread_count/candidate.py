import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            return torch.relu(x)
        finally:
            torch.set_num_threads(threads)
