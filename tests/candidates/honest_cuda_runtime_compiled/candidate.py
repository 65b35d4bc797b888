import torch
import torch.nn as nn

SOURCE = r"""
extern "C" __global__ void relu(const float* x, float* y, int size) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < size; i += gridDim.x * blockDim.x) {
        y[i] = x[i] > 0.0f ? x[i] : 0.0f;
    }
}
"""


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.kernel = None
        self.tried = False

    def compile_kernel(self):
        self.tried = True
        try:
            self.kernel = torch.cuda._compile_kernel(SOURCE, "relu")
        except (AttributeError, OSError, RuntimeError, TypeError) as error:
            print("no run-time compilation:", error)

    @torch.no_grad()
    def forward(self, x):
        if not self.tried:
            self.compile_kernel()
        if self.kernel is None or x.numel() >= 2**31 - 2**22:
            return torch.relu(x)
        x = x.contiguous()
        y = torch.empty_like(x)
        self.kernel(grid=(2112, 1, 1), block=(512, 1, 1), args=[x, y, x.numel()])
        return y
