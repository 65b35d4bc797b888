import torch
import torch.nn as nn


def normalised(logits):
    # The largest first: what is left is small, and so is its rounding.
    shifted = logits - logits.amax(dim=-1, keepdim=True)
    return shifted - shifted.exp().sum(dim=-1, keepdim=True).log()


class Divergence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, student, teacher, temperature):
        log_q, log_p = normalised(student), normalised(teacher)
        p, difference = log_p.exp(), log_p - log_q
        divergence = (p * difference).sum(dim=-1)
        ctx.save_for_backward(p, log_q, difference, divergence)
        ctx.temperature = temperature
        return divergence * temperature**2

    @staticmethod
    def backward(ctx, upstream):
        p, log_q, difference, divergence = ctx.saved_tensors
        scale = (upstream * ctx.temperature**2).unsqueeze(-1)
        return (log_q.exp() - p) * scale, p * (difference - divergence.unsqueeze(-1)) * scale, None


class ModelNew(nn.Module):
    def __init__(self, temperature):
        super().__init__()
        self.temperature = temperature

    def forward(self, student, teacher):
        return Divergence.apply(student / self.temperature, teacher / self.temperature, self.temperature)
