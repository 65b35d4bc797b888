"""Handles of nothing, and places outside of what they are of."""

import torch
import torch.nn as nn

from evaluator.protocol.control_page import Location, LocationKind
from evaluator.runner.locations import Locator

locate = Locator.locate
wild = []


def lie(locator, value, target):
    wild.append(value.data_ptr())
    true = Location.decode(locate(locator, value, target))
    lies = (
        Location(LocationKind.PRIVATE, 2**62, true.strides, true.handle),
        Location(LocationKind.PRIVATE, 2**64 - 4, true.strides, true.handle),
        Location(LocationKind.PRIVATE, 0, (2**40,) * 8, true.handle),
        Location(LocationKind.PRIVATE, 1, true.strides, true.handle),
        Location(LocationKind.PRIVATE, 0, true.strides, bytes(64)),
        Location(LocationKind.PRIVATE, 0, true.strides, bytes(reversed(true.handle))),
    )
    return lies[wild[0] // 512 % len(lies)].encode()


Locator.locate = lie


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.relu(x)
