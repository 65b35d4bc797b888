import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.staging = None

    @torch.no_grad()
    def forward(self, x):
        if self.staging is None or self.staging.shape != x.shape:
            self.staging = torch.empty(x.shape, dtype=x.dtype, pin_memory=True)
        self.staging.copy_(x, non_blocking=True)
        torch.cuda.current_stream().synchronize()
        self.staging.clamp_(min=0)
        y = self.staging.to(x.device, non_blocking=True)
        torch.cuda.current_stream().synchronize()
        return y
