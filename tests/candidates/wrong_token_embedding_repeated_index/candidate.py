import torch
import torch.nn as nn


class Embedding(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tokens, positions, indices):
        ctx.save_for_backward(indices)
        ctx.vocabulary = tokens.shape[0]
        return tokens[indices] + positions

    @staticmethod
    def backward(ctx, upstream):
        (indices,) = ctx.saved_tensors
        tokens = upstream.new_zeros(ctx.vocabulary, upstream.shape[-1])
        tokens[indices] = upstream
        return tokens, upstream.sum(dim=0), None


class ModelNew(nn.Module):
    def __init__(self, vocabulary, length, width):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)

    def forward(self, indices):
        return Embedding.apply(self.tokens.weight, self.positions.weight, indices)
