import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(200, 32, sparse=True)

    def forward(self, at):
        return self.table(at).sum(1).to_sparse()
