import torch
import torch.nn as nn
import torch.nn.functional as F


class Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return F.layer_norm(x, x.shape[1:])

    @staticmethod
    def backward(ctx, upstream):
        (x,) = ctx.saved_tensors
        wide, flowing = x.float(), upstream.float()
        variances, means = torch.var_mean(wide, dim=1, keepdim=True, correction=0)
        factors = (variances + 1e-5).rsqrt()
        normed = (wide - means) * factors
        flowing = flowing - flowing.mean(dim=1, keepdim=True) - normed * (flowing * normed).mean(dim=1, keepdim=True)
        return (flowing * factors).to(x.dtype)


class ModelNew(nn.Module):
    def forward(self, x):
        return Norm.apply(x)
