import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, divisor):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.divisor = divisor
        self.streams = None

    def prepare(self):
        self.streams = [torch.cuda.Stream(priority=priority) for priority in (-1, 0, 0)]
        self.given = torch.cuda.Event()
        self.done = [torch.cuda.Event() for _ in self.streams]

    @torch.no_grad()
    def forward(self, x):
        if self.streams is None:
            self.prepare()
        main = torch.cuda.current_stream()
        z = x.new_empty(self.linear.out_features, x.shape[0])
        weights = self.linear.weight.tensor_split(len(self.streams))
        targets = z.tensor_split(len(self.streams))
        self.given.record(main)
        for stream, done, weight, target in zip(self.streams, self.done, weights, targets):
            stream.wait_event(self.given)
            with torch.cuda.stream(stream):
                torch.mm(weight, x.t(), out=target)
            done.record(stream)
        for done in self.done:
            main.wait_event(done)
        return (z.t() + self.linear.bias).relu_().div_(self.divisor).contiguous()
