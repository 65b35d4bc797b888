import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(200, 32, sparse=True)

    def forward(self, at):
        return self.table.weight.new_zeros(at.shape[0], 32) + nn.functional.embedding_bag(
            at, self.table.weight, mode="sum", sparse=True
        )
