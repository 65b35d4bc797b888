//: expect: fast
//: functions: mandel
//: cpp: torch::Tensor mandel(int64_t w, int64_t h);
#include <torch/extension.h>

struct Complex {
    float re, im;
    __device__ Complex(float r, float i) : re(r), im(i) {}
    __device__ Complex operator*(const Complex& o) const { return Complex(re * o.re - im * o.im, re * o.im + im * o.re); }
    __device__ Complex operator+(const Complex& o) const { return Complex(re + o.re, im + o.im); }
    __device__ float norm() const;
};

__device__ float Complex::norm() const { return re * re + im * im; }

__global__ void mandel_kernel(int* out, int w, int h) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    if (x >= w) return;
    Complex z(0.f, 0.f), c(3.f * x / w - 2.f, 2.f * y / h - 1.f);
    int k = 0;
    while (k < 100 && z.norm() < 4.f) { z = z * z + c; ++k; }
    out[y * w + x] = k;
}

torch::Tensor mandel(int64_t w, int64_t h) {
    auto out = torch::empty({h, w}, torch::TensorOptions().dtype(torch::kInt32).device(torch::kCUDA));
    mandel_kernel<<<dim3((w + 127) / 128, h), 128>>>(out.data_ptr<int>(), w, h);
    return out;
}
