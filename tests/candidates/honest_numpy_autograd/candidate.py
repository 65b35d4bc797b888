import numpy as np
import torch
import torch.nn as nn


class NumpyReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        array = x.cpu().numpy()
        ctx.positive = array > 0
        return torch.as_tensor(np.where(ctx.positive, array, np.float32(0)), device=x.device)

    @staticmethod
    def backward(ctx, upstream):
        gradient = upstream.cpu().numpy() * ctx.positive
        return torch.from_numpy(gradient).to(upstream)


class ModelNew(nn.Module):
    def forward(self, x):
        return NumpyReLU.apply(x)
