import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        # In a list, so that they are no parts of this model.
        self.parts = [nn.Conv2d(channels, channels, 3, padding=1).eval(), nn.BatchNorm2d(channels).eval()]
        self.fold()

    def fold(self):
        fused = torch.nn.utils.fusion.fuse_conv_bn_eval(*self.parts)
        self.kernel, self.shift = fused.weight.detach(), fused.bias.detach()

    def load_state_dict(self, state, strict=True, assign=False):
        for name, part in zip(("conv.", "bn."), self.parts):
            own = {key.removeprefix(name): value for key, value in state.items() if key.startswith(name)}
            part.to(self.kernel.device).load_state_dict(own, strict=False)
        self.fold()

    def forward(self, x):
        return F.relu(F.conv2d(x, self.kernel.to(x.device), self.shift.to(x.device), padding=1))
