import torch
import torch.nn.functional as F
from model import Model


class ModelNew(Model):
    def forward(self, x):
        batch, length, width = x.shape
        projected = self.projections(F.layer_norm(x, (width,)))
        split = projected.view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(split[0], split[1], split[2], is_causal=True)
        x = x + self.attention_out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.network_out(F.gelu(self.network_in(F.layer_norm(x, (width,)))))
