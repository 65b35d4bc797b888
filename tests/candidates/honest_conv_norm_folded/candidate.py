import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        conv, bn = nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels)
        self.conv = torch.nn.utils.fusion.fuse_conv_bn_eval(conv.eval(), bn.eval())

    def forward(self, x):
        return F.relu(self.conv(x))
