import torch
import torch.nn as nn


class Model(nn.Module):
    """
    Looks up a vector for each token, and adds one for its position.
    """

    def __init__(self, vocabulary, length, width):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)

    def forward(self, indices):
        """
        Args:
            indices: integers of shape (batch_size, length), each from 0 to vocabulary - 1.

        Returns:
            Tensor of shape (batch_size, length, width).
        """
        places = torch.arange(indices.shape[1], device=indices.device)
        return self.tokens(indices) + self.positions(places)


batch_size = 128
length = 1024
vocabulary = 32768
width = 1024


def get_inputs():
    return [torch.randint(vocabulary, (batch_size, length))]


def get_init_inputs():
    return [vocabulary, length, width]
