//: expect: fast
//: functions: conv2d_forward, conv2d_backward_input
//: cpp: torch::Tensor conv2d_forward(torch::Tensor x, torch::Tensor w, int64_t pad); torch::Tensor conv2d_backward_input(torch::Tensor g, torch::Tensor w, int64_t h, int64_t wd, int64_t pad);
#include <torch/extension.h>

struct ConvShape { int N, C, H, W, O, R, S, P, Q, pad; };

__global__ void conv2d_fwd(const float* __restrict__ x, const float* __restrict__ w, float* __restrict__ y, const ConvShape s) {
    int q = blockIdx.x * blockDim.x + threadIdx.x, p = blockIdx.y, no = blockIdx.z;
    if (q >= s.Q) return;
    int n = no / s.O, o = no % s.O;
    float acc = 0.f;
    for (int c = 0; c < s.C; ++c)
        for (int r = 0; r < s.R; ++r)
            for (int t = 0; t < s.S; ++t) {
                int h = p + r - s.pad, v = q + t - s.pad;
                if (h >= 0 && h < s.H && v >= 0 && v < s.W)
                    acc += x[((n * s.C + c) * s.H + h) * s.W + v] * w[((o * s.C + c) * s.R + r) * s.S + t];
            }
    y[((n * s.O + o) * s.P + p) * s.Q + q] = acc;
}

__global__ void conv2d_bwd_input(const float* g, const float* w, float* dx, const ConvShape s) {
    int v = blockIdx.x * blockDim.x + threadIdx.x, h = blockIdx.y, nc = blockIdx.z;
    if (v >= s.W) return;
    int n = nc / s.C, c = nc % s.C;
    float acc = 0.f;
    for (int o = 0; o < s.O; ++o)
        for (int r = 0; r < s.R; ++r)
            for (int t = 0; t < s.S; ++t) {
                int p = h - r + s.pad, q = v - t + s.pad;
                if (p >= 0 && p < s.P && q >= 0 && q < s.Q)
                    acc += g[((n * s.O + o) * s.P + p) * s.Q + q] * w[((o * s.C + c) * s.R + r) * s.S + t];
            }
    dx[((n * s.C + c) * s.H + h) * s.W + v] = acc;
}

static ConvShape shape_of(const torch::Tensor& w, int N, int H, int W, int pad) {
    ConvShape s;
    s.N = N; s.C = w.size(1); s.H = H; s.W = W; s.O = w.size(0); s.R = w.size(2); s.S = w.size(3); s.pad = pad;
    s.P = H + 2 * pad - s.R + 1; s.Q = W + 2 * pad - s.S + 1;
    return s;
}

torch::Tensor conv2d_forward(torch::Tensor x, torch::Tensor w, int64_t pad) {
    auto s = shape_of(w, x.size(0), x.size(2), x.size(3), pad);
    auto y = torch::empty({s.N, s.O, s.P, s.Q}, x.options());
    conv2d_fwd<<<dim3((s.Q + 63) / 64, s.P, s.N * s.O), 64>>>(x.data_ptr<float>(), w.data_ptr<float>(), y.data_ptr<float>(), s);
    return y;
}

torch::Tensor conv2d_backward_input(torch::Tensor g, torch::Tensor w, int64_t h, int64_t wd, int64_t pad) {
    auto s = shape_of(w, g.size(0), h, wd, pad);
    auto dx = torch::empty({s.N, s.C, s.H, s.W}, g.options());
    conv2d_bwd_input<<<dim3((s.W + 63) / 64, s.H, s.N * s.C), 64>>>(g.data_ptr<float>(), w.data_ptr<float>(), dx.data_ptr<float>(), s);
    return dx;
}
