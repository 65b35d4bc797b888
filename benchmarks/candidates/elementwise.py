"""Kernels for problems that are element-wise, or are so after a matrix product that is left to torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from benchmarks.candidates.kernels import Kernels

__all__ = ["GELU", "GEMM_BIAS_GELU", "LINEAR_RELU_DIVIDE", "RELU", "SWIGLU_MLP"]


def _elementwise(name: str, reads: Sequence[str], writes: Sequence[str], scalars: Sequence[str] = ()) -> str:
    """The kernel that applies ``<name>_of`` to each element, and the function that starts it."""
    kernel = [*(f"const T* __restrict__ {x}" for x in reads), *(f"T* __restrict__ {x}" for x in writes)]
    host = [*(f"torch::Tensor {x}" for x in reads), *(f"double {x}" for x in scalars)]
    passed = [*(f"{x}.data_ptr<T>()" for x in (*reads, *writes)), *(f"T({x})" for x in scalars), "count"]
    values = [*(f"{x}_pack.at[c]" for x in (*reads, *writes)), *scalars]
    result = "torch::Tensor" if len(writes) == 1 else "std::vector<torch::Tensor>"
    return f"""
${{typed}}__global__ void __launch_bounds__(kThreads) {name}_kernel(
    {", ".join((*kernel, *(f"T {x}" for x in scalars)))}, int64_t count) {{
    $each_pack {{
        {" ".join(f"const Pack$of {x}_pack = load({x}, i);" for x in reads)}
        Pack$of {", ".join(f"{x}_pack" for x in writes)};
        #pragma unroll
        for (int c = 0; c < kWidth; ++c) {{
            {name}_of({", ".join(values)});
        }}
        {" ".join(f"store({x}, i, {x}_pack);" for x in writes)}
    }}
}}

{result} {name}({", ".join(host)}) {{
    {" ".join(f"{x} = ready({x});" for x in reads)}
    torch::Tensor {", ".join(f"{x} = torch::empty_like({reads[0]})" for x in writes)};
    const int64_t count = {reads[0]}.numel() / kWidth;
    [[maybe_unused]] const auto type = {reads[0]}.scalar_type();
    ${{open}}{name}_kernel$of<<<blocks_for(count), kThreads>>>({", ".join(passed)});$close
    return {writes[0] if len(writes) == 1 else "{" + ", ".join(writes) + "}"};
}}
"""


RELU: Final = Kernels(
    cuda="""
${typed}__device__ __forceinline__ void forward_of(T x, T& y) { y = x > T(0) ? x : T(0); }
${typed}__device__ __forceinline__ void backward_of(T dy, T x, T& dx) { dx = x > T(0) ? dy : T(0); }
"""
    + _elementwise("forward", ["x"], ["y"])
    + _elementwise("backward", ["dy", "x"], ["dx"]),
    cpp="torch::Tensor forward(torch::Tensor x);\ntorch::Tensor backward(torch::Tensor dy, torch::Tensor x);",
    model="""
class Activation(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return extension.forward(x)

    @staticmethod
    def backward(ctx, dy):
        return extension.backward(dy, *ctx.saved_tensors)


class ModelNew(nn.Module):
    def forward(self, x):
        return Activation.apply(x)
""",
)

GELU: Final = Kernels(
    cuda="""
${typed}__device__ __forceinline__ void forward_of(T x, T& y) {
    y = x * T(0.5) * (T(1) + erf(x * T(0.70710678118654752)));
}
${typed}__device__ __forceinline__ void backward_of(T dy, T x, T& dx) {
    const T below = T(0.5) * (T(1) + erf(x * T(0.70710678118654752)));
    dx = dy * (below + x * T(0.39894228040143268) * exp(T(-0.5) * x * x));
}
"""
    + _elementwise("forward", ["x"], ["y"])
    + _elementwise("backward", ["dy", "x"], ["dx"]),
    cpp=RELU.cpp,
    model=RELU.model,
)

LINEAR_RELU_DIVIDE: Final = Kernels(
    cuda="""
${typed}__device__ __forceinline__ void forward_of(T x, T& y, T divisor) { y = (x > T(0) ? x : T(0)) / divisor; }
${typed}__device__ __forceinline__ void backward_of(T dy, T x, T& dx, T divisor) {
    dx = x > T(0) ? dy / divisor : T(0);
}
"""
    + _elementwise("forward", ["x"], ["y"], ["divisor"])
    + _elementwise("backward", ["dy", "x"], ["dx"], ["divisor"]),
    cpp="torch::Tensor forward(torch::Tensor x, double divisor);\n"
    "torch::Tensor backward(torch::Tensor dy, torch::Tensor x, double divisor);",
    model="""
class Epilogue(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, divisor):
        ctx.save_for_backward(x)
        ctx.divisor = divisor
        return extension.forward(x, divisor)

    @staticmethod
    def backward(ctx, dy):
        return extension.backward(dy, *ctx.saved_tensors, ctx.divisor), None


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, divisor):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.divisor = divisor

    def forward(self, x):
        return Epilogue.apply(self.linear(x), self.divisor)
""",
)

GEMM_BIAS_GELU: Final = Kernels(
    cuda="""
${typed}__device__ __forceinline__ T curve(T x) {
    return tanh(T(0.79788456080286536) * (x + T(0.044715) * x * x * x));
}
${typed}__device__ __forceinline__ void forward_of(T x, T& y) { y = T(0.5) * x * (T(1) + curve(x)); }
${typed}__device__ __forceinline__ void backward_of(T dy, T x, T& dx) {
    const T bent = curve(x);
    const T slope = (T(1) - bent * bent) * T(0.79788456080286536) * (T(1) + T(0.134145) * x * x);
    dx = dy * T(0.5) * (T(1) + bent + x * slope);
}
"""
    + _elementwise("forward", ["x"], ["y"])
    + _elementwise("backward", ["dy", "x"], ["dx"]),
    cpp=RELU.cpp,
    model=RELU.model.partition("\nclass ModelNew")[0]
    + """
class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        return Activation.apply(self.linear(x))
""",
)

SWIGLU_MLP: Final = Kernels(
    cuda="""
${typed}__device__ __forceinline__ void forward_of(T gate, T up, T& y) { y = gate / (T(1) + exp(-gate)) * up; }
${typed}__device__ __forceinline__ void backward_of(T dy, T gate, T up, T& dgate, T& dup) {
    const T share = T(1) / (T(1) + exp(-gate));
    dgate = dy * up * share * (T(1) + gate * (T(1) - share));
    dup = dy * gate * share;
}
"""
    + _elementwise("forward", ["gate", "up"], ["y"])
    + _elementwise("backward", ["dy", "gate", "up"], ["dgate", "dup"]),
    cpp="torch::Tensor forward(torch::Tensor gate, torch::Tensor up);\n"
    "std::vector<torch::Tensor> backward(torch::Tensor dy, torch::Tensor gate, torch::Tensor up);",
    model="""
class Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up):
        ctx.save_for_backward(gate, up)
        return extension.forward(gate, up)

    @staticmethod
    def backward(ctx, dy):
        return tuple(extension.backward(dy, *ctx.saved_tensors))


class ModelNew(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        return self.down(Gate.apply(self.gate(x), self.up(x)))
""",
)
