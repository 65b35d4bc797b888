//: expect: refused: a managed variable
//: functions: bump
//: cpp: int64_t bump();
#include <torch/extension.h>
__managed__ int total = 0;
__global__ void bump_kernel() { atomicAdd(&total, 1); }
int64_t bump() { bump_kernel<<<4, 32>>>(); cudaDeviceSynchronize(); return total; }
