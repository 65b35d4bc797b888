import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        norm_in, linear, norm_out = nn.LayerNorm(width), nn.Linear(width, width), nn.LayerNorm(width)
        nn.init.zeros_(linear.bias)
        parts = {"norm_in": norm_in, "linear": linear, "norm_out": norm_out}
        for name in ("kernel", "offset", "scale", "shift"):
            self.register_buffer(name, None)
        self.load_state_dict({f"{part}.{key}": value for part in parts for key, value in parts[part].state_dict().items()})

    def load_state_dict(self, state, strict=True, assign=False):
        weight = state["linear.weight"]
        self.kernel = (weight * state["norm_in.weight"]).t().contiguous()
        self.offset = weight @ state["norm_in.bias"] + state["linear.bias"]
        self.scale, self.shift = state["norm_out.weight"].clone(), state["norm_out.bias"].clone()

    def forward(self, x):
        width = x.shape[-1:]
        x = torch.relu(torch.addmm(self.offset, F.layer_norm(x, width), self.kernel))
        return F.layer_norm(x, width, self.scale, self.shift)
