//: expect: refused: CUTLASS
//: functions: gemm
//: cpp: torch::Tensor gemm(torch::Tensor a, torch::Tensor b);
#include <torch/extension.h>
#include <cutlass/gemm/device/gemm.h>
torch::Tensor gemm(torch::Tensor a, torch::Tensor b) {
    using Gemm = cutlass::gemm::device::Gemm<float, cutlass::layout::RowMajor, float, cutlass::layout::RowMajor, float, cutlass::layout::RowMajor>;
    auto c = torch::empty({a.size(0), b.size(1)}, a.options());
    Gemm op;
    op({{(int)a.size(0), (int)b.size(1), (int)a.size(1)}, {a.data_ptr<float>(), (int)a.size(1)}, {b.data_ptr<float>(), (int)b.size(1)}, {c.data_ptr<float>(), (int)b.size(1)}, {c.data_ptr<float>(), (int)b.size(1)}, {1.f, 0.f}});
    return c;
}
