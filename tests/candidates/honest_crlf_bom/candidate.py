# -*- coding: utf-8 -*-
# Größer als null, sonst null.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.relu(x) \
            + 0
