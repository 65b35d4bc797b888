import torch.nn as nn


class Network(nn.Module):
    class Layer(nn.Module):
        def __init__(self, i, o):
            super().__init__()
            self.parts = nn.ModuleDict({"dense": nn.ModuleList([nn.ModuleList([nn.Linear(i, o)])])})

        def forward(self, x):
            return self.parts["dense"][0][0](x)

    def __init__(self, i, o):
        super().__init__()
        self.layers = nn.ModuleList(self.Layer(i, o) for _ in range(1))
        self.identity = nn.Identity()

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.identity(x)


class ModelNew(nn.Module):
    def __init__(self, i, o, d, /):
        super().__init__()
        self.network = Network(i, o)
        self.d = d

    def forward(self, x):
        return self.network(x).relu_() / self.d
