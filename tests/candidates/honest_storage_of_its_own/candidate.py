import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, y):
        for tensor in (x, y):
            assert tensor.storage_offset() == 0, tensor.storage_offset()
            assert tensor.data_ptr() % 64 == 0, tensor.data_ptr()
            assert tensor.untyped_storage().nbytes() == tensor.numel() * 4, tensor.untyped_storage().nbytes()
        one, other = (torch.empty(0, device=x.device).set_(each.detach().untyped_storage()) for each in (x, y))
        assert torch.equal(one.view(x.shape), x)
        assert torch.equal(other.view(y.shape), y)
        return x * y
