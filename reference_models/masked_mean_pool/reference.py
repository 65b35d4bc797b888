import torch
import torch.nn as nn


class Model(nn.Module):
    """
    The mean over those steps of each sequence that are not padding.
    """

    def forward(self, x, valid):
        """
        Args:
            x: tensor of shape (batch_size, steps, features).
            valid: booleans of shape (batch_size, steps): which steps count. A sequence may have none.

        Returns:
            Tensor of shape (batch_size, features); zeros for a sequence without valid steps.
        """
        counted = valid.unsqueeze(-1)
        total = torch.where(counted, x, torch.zeros_like(x)).sum(dim=1)
        return total / valid.sum(dim=1, keepdim=True).clamp(min=1)


batch_size = 256
steps = 1024
features = 1024


def get_inputs():
    # Of any length, and one without any step.
    lengths = torch.randint(steps + 1, (batch_size, 1))
    lengths[torch.randint(batch_size, (1,))] = 0
    return [torch.randn(batch_size, steps, features), torch.arange(steps).unsqueeze(0) < lengths]


def get_init_inputs():
    return []
