import torch, torch.nn as nn; _zero = 0.0
ModelNew = type("ModelNew", (nn.Module,), {"forward": lambda self, x: torch.clamp(x, min=_zero), "__module__": __name__})
