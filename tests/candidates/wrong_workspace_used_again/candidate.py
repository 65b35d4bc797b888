import torch
import torch.nn as nn


class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, workspace):
        torch.softmax(x, dim=-1, out=workspace)
        ctx.workspace = workspace
        return workspace.clone()

    @staticmethod
    def backward(ctx, upstream):
        y = ctx.workspace
        return y * (upstream - (y * upstream).sum(-1, keepdim=True)), None


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()
        self.workspace = None

    def forward(self, x):
        if self.workspace is None:
            self.workspace = torch.empty_like(x, requires_grad=False)
        return Softmax.apply(x, self.workspace)
