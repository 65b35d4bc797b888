import torch
import torch.nn as nn


class Embedding(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tokens, positions, indices):
        ctx.save_for_backward(indices)
        ctx.vocabulary = tokens.shape[0]
        gathered = tokens.index_select(0, indices.reshape(-1)).view(*indices.shape, -1)
        return gathered.add_(positions)

    @staticmethod
    def backward(ctx, upstream):
        (indices,) = ctx.saved_tensors
        width = upstream.shape[-1]
        tokens = upstream.new_zeros(ctx.vocabulary, width)
        tokens.index_add_(0, indices.reshape(-1), upstream.reshape(-1, width))
        return tokens, upstream.sum(dim=0), None


class ModelNew(nn.Module):
    def __init__(self, vocabulary, length, width):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)

    def forward(self, indices):
        return Embedding.apply(self.tokens.weight, self.positions.weight, indices)
