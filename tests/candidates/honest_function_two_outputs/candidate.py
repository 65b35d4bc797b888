import torch
import torch.nn as nn


class ReLUWithMask(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        mask = x > 0
        ctx.mark_non_differentiable(mask)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(mask)
        return x * mask, mask

    @staticmethod
    def backward(ctx, upstream, _):
        if upstream is None:
            return None
        (mask,) = ctx.saved_tensors
        return upstream * mask


class ModelNew(nn.Module):
    def forward(self, x):
        y, self.last_mask = ReLUWithMask.apply(x)
        return y
