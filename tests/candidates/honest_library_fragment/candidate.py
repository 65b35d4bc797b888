import torch
import torch.nn as nn

library = torch.library.Library("rectifier_fragment", "DEF")
library.define("relu(Tensor x, float floor=0.) -> Tensor")


def relu(x, floor=0.0):
    return torch.clamp_min(x, floor)


library.impl("relu", relu, "CompositeImplicitAutograd")


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.ops.rectifier_fragment.relu.default(x)
