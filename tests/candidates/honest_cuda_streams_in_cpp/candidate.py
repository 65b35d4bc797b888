import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

// What is given to second from now on comes after all that first has been given.
void order(cudaStream_t first, cudaStream_t second) {
    cudaEvent_t event;
    C10_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    C10_CUDA_CHECK(cudaEventRecord(event, first));
    C10_CUDA_CHECK(cudaStreamWaitEvent(second, event, 0));
    // The runtime keeps it until it has been waited for.
    C10_CUDA_CHECK(cudaEventDestroy(event));
}

torch::Tensor relu_on_two_streams(const torch::Tensor& input) {
    const torch::Tensor x = input.contiguous();
    torch::Tensor y = torch::empty_like(x);
    const c10::cuda::CUDAStream current = c10::cuda::getCurrentCUDAStream();
    const c10::cuda::CUDAStream other = c10::cuda::getStreamFromPool(false, x.get_device());
    const int64_t half = x.size(0) / 2;
    order(current, other);
    {
        const c10::cuda::CUDAStreamGuard guard(other);
        torch::Tensor lower = y.narrow(0, half, x.size(0) - half);
        at::clamp_min_out(lower, x.narrow(0, half, x.size(0) - half), 0);
    }
    torch::Tensor upper = y.narrow(0, 0, half);
    at::clamp_min_out(upper, x.narrow(0, 0, half), 0);
    order(other, current);
    return y;
}
"""

streams = load_inline(
    name="relu_two_streams", cpp_sources=source, functions=["relu_on_two_streams"], with_cuda=True
)


class ModelNew(nn.Module):
    @torch.no_grad()
    def forward(self, x):
        return streams.relu_on_two_streams(x)
