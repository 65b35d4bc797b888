import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def forward(self, predicted, target):
        return -F.cosine_similarity(predicted, target, dim=-1)
