import torch
import torch.nn as nn


class BitReLU(torch.autograd.Function):
    """Keeps 1/32 of what saving the output would keep."""

    @staticmethod
    def forward(ctx, x):
        powers = 2 ** torch.arange(8, device=x.device)
        flat = (x > 0).reshape(-1)
        padding = -flat.numel() % 8
        bits = torch.nn.functional.pad(flat.to(torch.uint8), (0, padding)).view(-1, 8)
        ctx.save_for_backward((bits * powers.to(torch.uint8)).sum(dim=1, dtype=torch.uint8))
        return x.relu()

    @staticmethod
    def backward(ctx, upstream):
        (packed,) = ctx.saved_tensors
        shifts = torch.arange(8, device=packed.device, dtype=torch.uint8)
        bits = (packed.unsqueeze(1) >> shifts) & 1
        mask = bits.view(-1)[: upstream.numel()].view(upstream.shape)
        return upstream * mask


class ModelNew(nn.Module):
    def forward(self, x):
        return BitReLU.apply(x)
