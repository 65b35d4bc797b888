import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """
    A gated network: SiLU of one projection times another, projected back.
    """

    def __init__(self, width, hidden):
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        """
        Args:
            x: tensor of shape (tokens, width).

        Returns:
            Tensor of the same shape.
        """
        return self.down(F.silu(self.gate(x)) * self.up(x))


tokens = 2048
width = 2048
hidden = 5632


def get_inputs():
    return [torch.randn(tokens, width)]


def get_init_inputs():
    return [width, hidden]
