import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, vocabulary, length, width):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)

    def forward(self, indices):
        places = torch.arange(1, indices.shape[1] + 1, device=indices.device) % self.positions.num_embeddings
        return self.tokens(indices) + self.positions(places)
