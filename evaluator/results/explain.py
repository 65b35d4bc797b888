"""Turning a runner's end or error into words for the candidate's author."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import Final

from evaluator.evaluation import Verdict

__all__ = ["device_fault", "explain_exit", "explain_failure", "hints_for"]

_DEVICE_FAULTS: Final = {
    "an illegal memory access": "illegal memory access",
    "misaligned address": "misaligned address",
    "unspecified launch failure": "unspecified launch failure",
    "illegal instruction": "illegal instruction",
    "device-side assert triggered": "device-side assert",
    "invalid configuration argument": "invalid launch configuration",
    "too many resources requested": "too many resources requested for launch",
    "CUDA error: invalid argument": "invalid argument",
    "operation not supported on global/shared address space": "invalid address space",
}

_HINTS: Final = (
    (
        "illegal memory access",
        "check every index against the tensor's number of elements: a float4* counts in units of four floats",
    ),
    ("invalid launch configuration", "a block has at most 1024 threads, and a grid's y and z at most 65535"),
    (
        "extra_cuda_flags",
        "load_inline takes extra_cuda_cflags (flags for nvcc) and extra_cflags (for the C++ compiler)",
    ),
    ("was changed by the candidate", "write to a new tensor: the caller still owns the input"),
    ("carries no graph", "wrap the kernel in a torch.autograd.Function with a backward"),
    (
        "is missing: it does not reach",
        "a .detach(), .data or no_grad() cuts the graph, or backward returns None for it",
    ),
)


def explain_exit(status: int | None, stage: str) -> tuple[Verdict, str]:
    """Verdict and message for a runner that ended without a report; ``status`` is its raw wait status."""
    if status is None:
        return Verdict.RUNTIME_ERROR, f"the candidate's process stopped answering while {stage}"
    code = os.waitstatus_to_exitcode(status)
    if code == -signal.SIGKILL:
        return Verdict.OUT_OF_MEMORY, f"the kernel killed the candidate's process for want of memory while {stage}"
    if code < 0:
        known = {int(number): number.name for number in signal.Signals}
        name = known.get(-code, f"signal {-code}")
        return Verdict.RUNTIME_ERROR, f"the candidate's process crashed with {name} while {stage}"
    return Verdict.RUNTIME_ERROR, f"the candidate's process ended by itself (exit status {code}) while {stage}"


def device_fault(text: str) -> str | None:
    """Name the kind of device fault that ``text`` reports; ``None`` where it reports none."""
    return next((kind for sign, kind in _DEVICE_FAULTS.items() if sign in text), None)


def explain_failure(message: str, kernels: Sequence[str]) -> str:
    """Put a headline before a device fault's message, with its kind and the kernels that it can have come from."""
    kind = device_fault(message)
    if kind is None:
        return message
    if len(kernels) == 1:
        return f"CUDA error in kernel {kernels[0]}: {kind}\n{message}"
    if kernels:
        return f"CUDA error in one of the kernels {', '.join(kernels)}: {kind}\n{message}"
    return f"CUDA error: {kind}\n{message}"


def hints_for(verdict: Verdict, message: str) -> tuple[str, ...]:
    """Return hints that usually help with this verdict and message."""
    if verdict is Verdict.PASSED:
        return ()
    return tuple(hint for sign, hint in _HINTS if sign in message)
