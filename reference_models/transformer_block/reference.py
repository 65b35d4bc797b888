import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """
    A transformer's block with normalisation first: causal self-attention and a GELU network, each with a residual.
    """

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.projections = nn.Linear(width, 3 * width)
        self.attention_out = nn.Linear(width, width)
        self.network_norm = nn.LayerNorm(width)
        self.network_in = nn.Linear(width, 4 * width)
        self.network_out = nn.Linear(4 * width, width)
        # Not ones and zeros: leaving them out must show.
        for norm in (self.attention_norm, self.network_norm):
            nn.init.uniform_(norm.weight, 0.5, 1.5)
            nn.init.normal_(norm.bias, std=0.5)

    def forward(self, x):
        """
        Args:
            x: tensor of shape (batch_size, length, width).

        Returns:
            Tensor of the same shape.
        """
        batch_size, length, width = x.shape
        projected = self.projections(self.attention_norm(x))
        # (3, batch_size, heads, length, width of a head)
        split = projected.view(batch_size, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(split[0], split[1], split[2], is_causal=True)
        x = x + self.attention_out(attended.transpose(1, 2).reshape(batch_size, length, width))
        return x + self.network_out(F.gelu(self.network_in(self.network_norm(x))))


batch_size = 8
length = 512
width = 1024
heads = 16


def get_inputs():
    return [torch.randn(batch_size, length, width)]


def get_init_inputs():
    return [width, heads]
