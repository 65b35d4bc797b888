import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def forward(self, queries, keys, values):
        return F.scaled_dot_product_attention(queries, keys, values, is_causal=True, scale=queries.shape[-1] ** -0.5)
