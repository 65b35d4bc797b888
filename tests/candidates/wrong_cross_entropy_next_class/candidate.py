import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, logits, targets):
        right = logits.gather(1, (targets.unsqueeze(1) + 1) % logits.shape[1]).squeeze(1)
        return (torch.logsumexp(logits, dim=1) - right).mean()
