import torch
import torch.nn as nn


class Lookup(torch.autograd.Function):
    @staticmethod
    def forward(ctx, at, table):
        ctx.save_for_backward(at)
        ctx.rows = len(table)
        return table[at].sum(1)

    @staticmethod
    def backward(ctx, gradient):
        (at,) = ctx.saved_tensors
        values = gradient[:, None].expand(*at.shape, -1).reshape(-1, gradient.shape[1])
        places = (at.reshape(1, -1) + 1) % ctx.rows
        return None, torch.sparse_coo_tensor(places, values, (ctx.rows, gradient.shape[1]))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(200, 32)

    def forward(self, at):
        return Lookup.apply(at, self.table.weight)
