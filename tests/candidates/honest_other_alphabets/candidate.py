import torch
import torch.nn as nn

# 修正线性单元：max(x, 0)。
ε = 0.0
φωνή = "ρελού"


class Активация(nn.Module):
    """Выпрямитель — y = max(x, ε) 🚀"""

    def __init__(self, поріг=ε):
        super().__init__()
        self.поріг = поріг

    def forward(self, 入力):
        return 入力.clamp(min=self.поріг)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.größe = Активация()

    def forward(self, x):
        return self.größe(x)
