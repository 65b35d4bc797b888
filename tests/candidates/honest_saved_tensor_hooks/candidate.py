import torch
import torch.nn as nn


def pack(tensor):
    return tensor.numel(), tensor.to("cpu", copy=True), tensor.device


def unpack(packed):
    _, tensor, device = packed
    return tensor.to(device)


class ModelNew(nn.Module):
    def forward(self, x):
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            return torch.relu(x)
