//: expect: fast
//: functions: minus_one
//: cpp: torch::Tensor minus_one(torch::Tensor x);
#include <torch/extension.h>
	__global__	void minus_one_kernel(float* y, int n) {
	int i = blockIdx.x * blockDim.x + \
		threadIdx.x;
	if (i < n) y[i] -= 1.f;
}
torch::Tensor minus_one(torch::Tensor x) { auto y = x.clone(); minus_one_kernel<<<(x.numel() + 255) / 256, 256>>>(y.data_ptr<float>(), x.numel()); return y; }
