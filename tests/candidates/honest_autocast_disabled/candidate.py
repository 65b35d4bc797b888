import torch
import torch.nn as nn

torch.set_float32_matmul_precision("highest")


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, divisor):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.divisor = divisor

    def forward(self, x):
        with torch.autocast(device_type=x.device.type, enabled=False):
            return torch.relu(self.linear(x.float())) / self.divisor
