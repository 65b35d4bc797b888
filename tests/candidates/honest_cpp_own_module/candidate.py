import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>

struct Rectifier {
    explicit Rectifier(double floor) : floor_(floor) {}

    torch::Tensor operator()(const torch::Tensor& x) {
        ++calls_;
        return x.clamp_min(floor_);
    }

    double floor_;
    int64_t calls_ = 0;
};

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.doc() = "rectifiers";
    py::class_<Rectifier>(m, "Rectifier")
        .def(py::init<double>(), py::arg("floor") = 0.0)
        .def("__call__", &Rectifier::operator(), py::call_guard<py::gil_scoped_release>())
        .def_readonly("calls", &Rectifier::calls_);
}
"""

rectifiers = load_inline(name="rectifiers", cpp_sources=source, verbose=True, no_implicit_headers=True)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.rectifier = rectifiers.Rectifier(floor=0.0)

    def forward(self, x):
        return self.rectifier(x.detach())
