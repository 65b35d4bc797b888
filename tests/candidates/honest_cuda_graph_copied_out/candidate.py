import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.plans = {}

    def plan(self, x):
        if x.shape not in self.plans:
            given = torch.zeros_like(x)
            result = torch.empty_like(x)
            # Once outside of the capture, so that the kernel is loaded.
            torch.clamp(given, min=0, out=result)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for source, target in zip(given.chunk(2), result.chunk(2)):
                    torch.clamp(source, min=0, out=target)
            self.plans[x.shape] = graph, given, result
        return self.plans[x.shape]

    @torch.no_grad()
    def forward(self, x):
        graph, given, result = self.plan(x)
        given.copy_(x)
        graph.replay()
        return result.clone()
