import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm_in = nn.LayerNorm(width)
        self.linear = nn.Linear(width, width)
        nn.init.zeros_(self.linear.bias)
        self.norm_out = nn.LayerNorm(width)
        self.fold()
        self.register_load_state_dict_post_hook(lambda model, keys: model.fold())

    def fold(self):
        with torch.no_grad():
            self.kernel = (self.linear.weight * self.norm_in.weight).t().contiguous()
            self.offset = self.linear.weight @ self.norm_in.bias + self.linear.bias

    def forward(self, x):
        if torch.is_grad_enabled():
            return self.norm_out(torch.relu(self.linear(self.norm_in(x))))
        kernel, offset = self.kernel.to(x.device), self.offset.to(x.device)
        return self.norm_out(torch.relu(torch.addmm(offset, F.layer_norm(x, x.shape[-1:]), kernel)))
