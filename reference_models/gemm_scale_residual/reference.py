import torch
import torch.nn as nn


class Model(nn.Module):
    """
    A linear layer without bias, scaled channel by channel, and added to a residual.
    """

    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features, bias=False)
        self.scale = nn.Parameter(torch.randn(out_features))

    def forward(self, x, residual):
        """
        Args:
            x: tensor of shape (batch_size, in_features).
            residual: tensor of shape (batch_size, out_features).

        Returns:
            Tensor of the residual's shape.
        """
        return self.linear(x) * self.scale + residual


batch_size = 4096
in_features = 4096
out_features = 4096


def get_inputs():
    return [torch.randn(batch_size, in_features), torch.randn(batch_size, out_features)]


def get_init_inputs():
    return [in_features, out_features]
