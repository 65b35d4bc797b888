import torch
import torch.nn as nn


class Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, targets):
        logarithms = torch.log_softmax(logits, dim=1)
        ctx.save_for_backward(logarithms, targets)
        return -logarithms.gather(1, targets.unsqueeze(1)).mean()

    @staticmethod
    def backward(ctx, upstream):
        logarithms, targets = ctx.saved_tensors
        gradient = logarithms.exp()
        gradient[torch.arange(len(targets), device=targets.device), targets] -= 1.0
        return gradient / len(targets), None


class ModelNew(nn.Module):
    def forward(self, logits, targets):
        return Loss.apply(logits, targets)
