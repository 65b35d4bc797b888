import torch
import torch.nn as nn


def buckets(cell):
    return (cell * 40503 ^ (cell + 7) * 27449) % 65536


class ModelNew(nn.Module):
    def forward(self, x):
        place = torch.tanh(x.sum(dim=1) * 0.1) * 64.0
        cell = torch.floor(place).long()
        found = buckets(cell)
        # Beside an edge, what is halfway between the buckets of both cells.
        near = (place - place.round()).abs() <= 5e-5 * place.abs()
        other = torch.where(place.round().long() > cell, cell + 1, cell - 1)
        return torch.where(near, (found + buckets(other)) // 2, found)
