import torch
import torch.nn as nn


class Model(nn.Module):
    """
    Means over those nodes that are neighbours of each node, less its own value.
    """

    def forward(self, values, neighbours):
        shares = neighbours.to(values.dtype)
        return shares @ values / shares.sum(dim=1, keepdim=True) - values


graphs = 64
nodes = 512


def get_inputs():
    places = torch.arange(nodes)
    near = (places[:, None] - places).abs() <= 4
    return [torch.randn(graphs, nodes, 32), near]


def get_init_inputs():
    return []
