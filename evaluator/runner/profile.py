"""The share of a forward's device time that is spent in the candidate's own kernels.

It is measured in the candidate's process: a claim of the runner's, good for a flag and for nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

import torch
from torch.autograd import DeviceType  # type: ignore[attr-defined] # torch does not say that it exports it
from torch.profiler import ProfilerActivity, profile

__all__ = ["base_name", "device_time_us", "split_us", "triton_kernels"]

_ANONYMOUS = "(anonymous namespace)::"


def device_time_us(call: Callable[[], Any], own: Collection[str], triton_cache: Path | None) -> tuple[float, float]:
    """Run ``call`` once, without gradients; device time in the candidate's own kernels, and in all, in microseconds.

    ``own``: names of the kernels of its extensions (``evaluator.build.diagnostics.kernel_names``).
    ``triton_cache``: the folder in which Triton keeps what it has compiled; what is there counts as own too, and
    with it what ``torch.compile`` has made. ``call`` should have run before: what tunes itself runs much more the
    first time. Without a CUDA device nothing runs, and both are 0.
    """
    if not torch.cuda.is_available():
        return 0.0, 0.0
    with torch.no_grad(), profile(activities=[ProfilerActivity.CUDA]) as profiled:
        call()
        torch.cuda.synchronize()
    ran = [
        (event.name, event.time_range.elapsed_us())
        for event in profiled.events()
        # A range that somebody marked spans kernels that are there themselves.
        if event.device_type == DeviceType.CUDA and not event.is_user_annotation
    ]
    compiled = triton_kernels(triton_cache) if triton_cache is not None else frozenset()
    return split_us(ran, {*own, *compiled})


def split_us(ran: Iterable[tuple[str, float]], own: Collection[str]) -> tuple[float, float]:
    """The time in kernels that are named in ``own``, and in all, from ``(demangled name, microseconds)``.

    Copies and fills are part of all. Arguments of templates are not compared: demanglers write them differently.
    """
    names = {base_name(name) for name in own} - {""}
    own_us = total_us = 0.0
    for name, duration_us in ran:
        total_us += duration_us
        if base_name(name) in names:
            own_us += duration_us
    return own_us, total_us


def base_name(demangled: str) -> str:
    """A kernel's name without its return type, arguments and those of its template, but with its namespaces."""
    plain = demangled.removeprefix("void ").replace(_ANONYMOUS, "")
    return plain.partition("(")[0].partition("<")[0].strip()


def triton_kernels(cache: Path) -> frozenset[str]:
    """Names of the kernels that Triton has compiled into ``cache``."""
    return frozenset(path.stem for path in cache.glob("*/*.cubin"))
