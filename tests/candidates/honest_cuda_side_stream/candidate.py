import torch
import torch.nn as nn


class TwoStreamReLU(torch.autograd.Function):
    streams = {}

    @classmethod
    def side(cls, device):
        if device not in cls.streams:
            cls.streams[device] = torch.cuda.Stream(device)
        return cls.streams[device]

    @staticmethod
    def forward(ctx, x):
        y = torch.empty_like(x)
        side, main = TwoStreamReLU.side(x.device), torch.cuda.current_stream(x.device)
        half = x.shape[0] // 2
        side.wait_stream(main)
        with torch.cuda.stream(side):
            torch.clamp(x[half:], min=0, out=y[half:])
        torch.clamp(x[:half], min=0, out=y[:half])
        y.record_stream(side)
        main.wait_stream(side)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, upstream):
        (y,) = ctx.saved_tensors
        return torch.where(y > 0, upstream, 0.0)


class ModelNew(nn.Module):
    def forward(self, x):
        return TwoStreamReLU.apply(x)
