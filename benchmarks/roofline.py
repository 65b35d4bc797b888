"""The share of its roofline that a device reaches: ``python -m benchmarks.roofline --device cuda:0``.

It prints the device's ceilings as measured, then the shares of two candidates, judged by the engine like any
submission. They are ``torch.relu`` on the problem ``relu``, and a plain copy on a problem that asks for one, made here.
The copy is torch's on a CPU, and a kernel that moves 16 bytes at a time on CUDA.

The copy does nothing but the work that the bound counts. So its share is the part of the ceiling that a candidate can
reach.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Final

from evaluator.candidates.candidate import Candidate, parse_candidate
from evaluator.config import EvalConfig
from evaluator.engine import Engine
from evaluator.evaluation import Evaluation
from evaluator.problems.loading import load_problems
from evaluator.problems.problem import Problem

__all__ = ["main"]

_PROBLEMS = Path(__file__).parent.parent / "reference_models"
_RELU: Final = """
import torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
"""
_TORCH_COPY: Final = _RELU.replace("torch.relu(x)", "x.clone()")
_FLOAT4_COPY: Final = '''
import torch
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

__global__ void copy(const float4* __restrict__ from, float4* __restrict__ to, int64_t count) {
    const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
        to[i] = from[i];
    }
}

torch::Tensor copy_of(torch::Tensor x) {
    torch::Tensor y = torch::empty_like(x);
    const int64_t count = x.numel() / 4;
    const int blocks = static_cast<int>(std::min<int64_t>((count + 255) / 256, 1 << 30));
    copy<<<blocks, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
        reinterpret_cast<const float4*>(x.data_ptr<float>()), reinterpret_cast<float4*>(y.data_ptr<float>()), count);
    return y;
}
"""
extension = load_inline(
    name="copy_float4", cpp_sources="torch::Tensor copy_of(torch::Tensor x);", cuda_sources=source,
    functions=["copy_of"], extra_cuda_cflags=["-O3"],
)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.copy_of(x)
'''


def main(argv: list[str] | None = None) -> int:
    """Measure and print. The exit status is 0 if both candidates passed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.roofline", description=__doc__)
    parser.add_argument("--device", default="cpu", help="cpu, cuda:0 …")
    parser.add_argument(
        "--size",
        help="one of relu's sizes; default: full on CUDA, smoke on a CPU (medium is beyond caches, and takes minutes)",
    )
    options = parser.parse_args(argv)
    config = EvalConfig(device=options.device)
    config = replace(config, size=options.size or ("full" if config.device_kind == "cuda" else "smoke"))
    relu = load_problems(_PROBLEMS)["relu"]
    copy = _TORCH_COPY if config.device_kind == "cpu" else _FLOAT4_COPY
    with (
        tempfile.TemporaryDirectory(prefix="kerneljudge-bench-") as folder,
        Engine(device=options.device, cache_dir=Path(folder)) as engine,
    ):
        found = {
            "torch.relu": _evaluate(engine, relu, _RELU, config),
            "copy": _evaluate(engine, _copying(relu), copy, config),
        }
    _print(found, config)
    return 0 if all(evaluation.passed for evaluation in found.values()) else 1


def _copying(relu: Problem) -> Problem:
    """Return ``relu`` with a copy of the same tensors as its reference, for inference alone."""
    source = relu.source.replace("return torch.relu(x)", "return x.clone()")
    assert source != relu.source
    return replace(relu, id="copy", source=source, gradient_policy="none")


def _evaluate(engine: Engine, problem: Problem, source: str, config: EvalConfig) -> Evaluation:
    candidate = parse_candidate(code=source)
    assert isinstance(candidate, Candidate), candidate
    return engine.build(problem, candidate, config).evaluation or engine.evaluate(problem, candidate, config)


def _print(found: dict[str, Evaluation], config: EvalConfig) -> None:
    first = next(iter(found.values()))
    print(f"{first.environment.get('device_name')}, torch {first.environment.get('torch')}, size {config.size}")
    for roofline in list(first.roofline.values())[:1]:
        print(f"memory {roofline.bytes_per_s / 1e9:,.1f} GB/s (read and written)")
    for precision, rate in first.details.get("ceilings", {}).get("operations_per_s", {}).items():
        print(f"{precision:<9}{rate / 1e12:>9.3f} TFLOP/s")
    print(f"\n{'candidate':<13}{'track':<11}{'latency':>12}{'bound':>12}{'by':>9}{'share':>9}")
    for name, evaluation in found.items():
        latencies = {"inference": evaluation.latency_ms, "training": evaluation.latency_training_ms}
        for track, roofline in evaluation.roofline.items():
            latency = latencies[track]
            assert latency is not None
            times = f"{latency.candidate:>9.3f} ms{roofline.bound_ms:>9.3f} ms"
            print(f"{name:<13}{track:<11}{times}{roofline.limited_by:>9}{100 * roofline.share:>7.1f} %")
        if not evaluation.passed:
            print(f"{name:<13}{evaluation.verdict}: {evaluation.message}")
        for note in evaluation.notes:
            print(f"  {name}: {note}")


if __name__ == "__main__":
    sys.exit(main())
