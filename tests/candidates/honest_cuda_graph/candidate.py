import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, divisor):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.divisor = divisor
        self.graph = None

    def eager(self, x):
        return torch.relu(self.linear(x)) / self.divisor

    def capture(self, x):
        self.static_input = x.clone()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.eager(self.static_input)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.static_output = self.eager(self.static_input)

    def forward(self, x):
        if torch.is_grad_enabled():
            return self.eager(x)
        if self.graph is None:
            self.capture(x)
        self.static_input.copy_(x)
        self.graph.replay()
        return self.static_output
