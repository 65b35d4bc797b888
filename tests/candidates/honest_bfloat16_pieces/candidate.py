import torch
import torch.nn as nn


def pieces(tensor):
    """Three tensors of eight significant bits each, largest first."""
    rest, found = tensor, []
    for _ in range(3):
        part = rest.to(torch.bfloat16).to(torch.float32)
        found.append(part)
        rest = rest - part
    return found


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, divisor):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.divisor = divisor

    @torch.no_grad()
    def forward(self, x):
        xs, ws = pieces(x), pieces(self.linear.weight)
        z = self.linear.bias.expand(x.shape[0], -1).clone()
        # Smallest products first.
        for order in (2, 1, 0):
            for i in range(order + 1):
                z.addmm_(xs[i], ws[order - i].t())
        return z.relu_().div_(self.divisor)
