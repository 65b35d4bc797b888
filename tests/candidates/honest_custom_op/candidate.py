import torch
import torch.nn as nn


@torch.library.custom_op("rectifier::relu", mutates_args=())
def relu(x: torch.Tensor) -> torch.Tensor:
    return x.clamp(min=0)


@relu.register_fake
def _(x):
    return torch.empty_like(x)


def setup_context(ctx, inputs, output):
    ctx.save_for_backward(output)


def backward(ctx, upstream):
    (y,) = ctx.saved_tensors
    return torch.ops.aten.threshold_backward(upstream, y, 0)


relu.register_autograd(backward, setup_context=setup_context)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.ops.rectifier.relu(x)
