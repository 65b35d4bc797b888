"""A candidate graded in the plain way, for comparison: ``python -m benchmarks.plain_way REFERENCE CANDIDATE``.

Evaluators in the field work in this way, in one fresh interpreter. Both files are executed in it, so that
``load_inline`` compiles by torch's own rules. The models are made under one seed. Five draws of inputs from a CPU are
compared with ``torch.allclose``.

Then each model is called a hundred times on one input, between CUDA events, or a clock on a CPU. The last-level cache
is flushed before each call. There is no sandbox and no gradient, and nothing is checked while it is timed. The output
is a JSON object with ``correct``, ``speedup`` and ``stage_s``.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import torch

__all__ = ["main"]

_SEED: Final = 42
_TRIALS: Final = 5
_WARM_UP: Final = 3
_SAMPLES: Final = 100
_TOLERANCE: Final = 1e-4
_FLUSHED_BYTES: Final = 256 * 2**20


def main(argv: list[str] | None = None) -> int:
    """Grade once. Return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plain_way", description=__doc__)
    parser.add_argument("--device", default="cpu", help="cpu, cuda:0 …")
    parser.add_argument("reference", type=Path)
    parser.add_argument("candidate", type=Path)
    options = parser.parse_args(argv)
    device = torch.device(options.device)
    stage_s: dict[str, float] = {}
    begin = time.monotonic()

    def passed(stage: str) -> None:
        nonlocal begin
        now = time.monotonic()
        stage_s[stage], begin = now - begin, now

    reference = _execute(options.reference)
    sys.modules["model"] = reference  # candidates may inherit from it
    candidate = _execute(options.candidate)
    passed("building")
    with torch.no_grad():
        ours = _construct(candidate.ModelNew, reference, device)
        theirs = _construct(reference.Model, reference, device)
        correct = all(_agree(ours, theirs, _draw(reference, device, trial)) for trial in range(_TRIALS))
        passed("verifying")
        inputs = _draw(reference, device, 0)
        speedup = _mean_ms(theirs, inputs, device) / _mean_ms(ours, inputs, device)
        passed("sampling")
    print(json.dumps({"correct": correct, "speedup": speedup, "stage_s": stage_s}))
    return 0


def _execute(path: Path) -> Any:
    module = type(sys)(path.stem)
    module.__file__ = str(path)
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), module.__dict__)  # noqa: S102 - that is the way
    return module


def _construct(model: Any, reference: Any, device: torch.device) -> torch.nn.Module:
    torch.manual_seed(_SEED)
    made: torch.nn.Module = model(*reference.get_init_inputs()).to(device)
    return made


def _draw(reference: Any, device: torch.device, trial: int) -> list[Any]:
    torch.manual_seed(_SEED + trial)
    return [value.to(device) if isinstance(value, torch.Tensor) else value for value in reference.get_inputs()]


def _agree(ours: torch.nn.Module, theirs: torch.nn.Module, inputs: list[Any]) -> bool:
    return torch.allclose(ours(*inputs), theirs(*inputs), atol=_TOLERANCE, rtol=_TOLERANCE)


def _mean_ms(model: torch.nn.Module, inputs: list[Any], device: torch.device) -> float:
    for _ in range(_WARM_UP):
        model(*inputs)
    flushed = torch.empty(_FLUSHED_BYTES, dtype=torch.uint8, device=device)
    samples = []
    for _ in range(_SAMPLES):
        flushed.zero_()
        samples.append(_call_ms(model, inputs, device))
    return fmean(samples)


def _call_ms(model: torch.nn.Module, inputs: list[Any], device: torch.device) -> float:
    if device.type != "cuda":
        start = time.perf_counter()
        model(*inputs)
        return 1000 * (time.perf_counter() - start)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    torch.cuda.synchronize()
    begin.record()
    model(*inputs)
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end))


if __name__ == "__main__":
    sys.exit(main())
