//: expect: fast
//: functions: matmul_bf16
//: cpp: torch::Tensor matmul_bf16(torch::Tensor a, torch::Tensor b);
//: cuda_flags: -O3 --use_fast_math -U__CUDA_NO_BFLOAT16_CONVERSIONS__ -U__CUDA_NO_HALF_OPERATORS__
#include <torch/extension.h>
#include <cuda_bf16.h>
#include <cstdint>

using bf16 = __nv_bfloat16;

struct Shape { int m, n, k; };

__device__ __forceinline__ uint32_t pack(bf16 low, bf16 high) {
    __nv_bfloat162 both = __halves2bfloat162(low, high);
    return *reinterpret_cast<uint32_t*>(&both);
}

__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__global__ void __launch_bounds__(32) matmul_kernel(
    const bf16* __restrict__ a, const bf16* __restrict__ b, bf16* __restrict__ c, const Shape shape) {
    const int lane = threadIdx.x, group = lane >> 2, pair = (lane & 3) * 2;
    const int row = blockIdx.y * 16, column = blockIdx.x * 8;
    float d[4] = {0.f, 0.f, 0.f, 0.f};
#pragma unroll 2
    for (int k = 0; k < shape.k; k += 16) {
        uint32_t fa[4], fb[2];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const bf16* p = a + (size_t)(row + group + 8 * (i & 1)) * shape.k + k + pair + 8 * (i >> 1);
            fa[i] = pack(p[0], p[1]);
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const bf16* p = b + (size_t)(k + pair + 8 * i) * shape.n + column + group;
            fb[i] = pack(p[0], p[shape.n]);
        }
        mma_m16n8k16(d, fa, fb);
    }
    for (int i = 0; i < 4; ++i) {
        c[(size_t)(row + group + 8 * (i >> 1)) * shape.n + column + pair + (i & 1)] = __float2bfloat16(d[i]);
    }
}

torch::Tensor matmul_bf16(torch::Tensor a, torch::Tensor b) {
    TORCH_CHECK(a.scalar_type() == torch::kBFloat16 && b.scalar_type() == at::ScalarType::BFloat16, "bfloat16 only");
    const Shape shape{static_cast<int>(a.size(0)), static_cast<int>(b.size(1)), static_cast<int>(a.size(1))};
    auto c = torch::empty({shape.m, shape.n}, a.options());
    dim3 grid(shape.n / 8, shape.m / 16);
    matmul_kernel<<<grid, 32>>>(
        reinterpret_cast<const bf16*>(a.data_ptr<at::BFloat16>()),
        reinterpret_cast<const bf16*>(b.data_ptr<at::BFloat16>()),
        reinterpret_cast<bf16*>(c.data_ptr<at::BFloat16>()), shape);
    cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
    return c;
}
