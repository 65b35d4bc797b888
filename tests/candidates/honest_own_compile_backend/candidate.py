import torch
import torch.nn as nn

node_counts = []


def counting_backend(graph_module, example_inputs):
    node_counts.append(len(graph_module.graph.nodes))
    return graph_module.forward


class Inner(nn.Module):
    def forward(self, x):
        return torch.relu(x)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.compile(Inner(), backend=counting_backend)

    def forward(self, x):
        return self.inner(x)
