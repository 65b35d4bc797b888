import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        linear = nn.Linear(width, width)
        self.register_buffer("kernel", linear.weight.detach().t().contiguous())
        for name in ("norm_in", "norm_out"):
            part = nn.Module()
            part.register_buffer("weight", torch.ones(width))
            part.register_buffer("bias", torch.zeros(width))
            self.add_module(name, part)
        self.register_buffer("offset", torch.zeros(width))

    def forward(self, x):
        x = F.layer_norm(x, x.shape[-1:], self.norm_in.weight, self.norm_in.bias)
        x = torch.relu(torch.addmm(self.offset, x, self.kernel))
        return F.layer_norm(x, x.shape[-1:], self.norm_out.weight, self.norm_out.bias)
