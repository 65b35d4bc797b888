import torch
import torch.nn as nn

seen = {"before": 0, "after": 0, "backward": 0, "tensor": 0}


def before(module, args):
    seen["before"] += 1


def after(module, args, output):
    seen["after"] += 1


def backward(module, grad_input, grad_output):
    seen["backward"] += 1


def on_tensor(gradient):
    seen["tensor"] += 1
    return None


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.relu = nn.ReLU()
        self.relu.register_forward_pre_hook(before)
        self.relu.register_forward_hook(after)
        self.relu.register_full_backward_hook(backward)
        self.register_forward_hook(after)
        self.register_full_backward_hook(backward)

    def forward(self, x):
        y = self.relu(x)
        if y.requires_grad:
            y.register_hook(on_tensor)
        return y
