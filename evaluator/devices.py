"""Which devices and compilers this machine has, found without torch and without touching CUDA."""

from __future__ import annotations

import os
import shutil
from functools import cache

import pynvml

__all__ = [
    "available_devices",
    "cuda_architectures",
    "cuda_nodes",
    "cuda_uuid",
    "has_cxx_compiler",
    "has_nvcc",
    "nvcc_path",
]

DEFAULT_CUDA_ARCHITECTURE = "9.0"


def available_devices() -> list[str]:
    """``cpu`` and every CUDA device that can be used from here, as ``cuda:0``, ``cuda:1`` …"""
    return ["cpu", *(f"cuda:{index}" for index in range(len(_capabilities())))]


def cuda_architectures() -> str:
    """The architectures to compile for, as ``TORCH_CUDA_ARCH_LIST`` writes them.

    Those of this machine's devices, as torch itself would choose; without a device, the default.
    """
    versions = sorted({f"{major}.{minor}" for major, minor in _capabilities()}) or [DEFAULT_CUDA_ARCHITECTURE]
    return ";".join([*versions[:-1], versions[-1] + "+PTX"])


def cuda_uuid(device: str) -> str:
    """The name that CUDA knows ``cuda`` or ``cuda:N`` by, wherever it is visible from. Raises ``pynvml.NVMLError``."""
    return _identities()[_index(device)][0]


def cuda_nodes(device: str) -> tuple[str, ...]:
    """The device nodes that a process needs to use this device and no other."""
    own = f"/dev/nvidia{_identities()[_index(device)][1]}"
    return (own, "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")


def has_nvcc() -> bool:
    """Whether CUDA's compiler is on this machine."""
    return nvcc_path() is not None


def nvcc_path() -> str | None:
    """Where CUDA's compiler is, or ``None``."""
    home = os.environ.get("CUDA_HOME") or "/usr/local/cuda"
    return shutil.which("nvcc") or shutil.which(f"{home}/bin/nvcc")


def has_cxx_compiler() -> bool:
    """Whether the C++ compiler that torch would call is on this machine."""
    return shutil.which(os.environ.get("CXX", "c++")) is not None


def _index(device: str) -> int:
    return int(device.partition(":")[2] or 0)


@cache
def _identities() -> tuple[tuple[str, int], ...]:
    """UUID and minor number of every device."""
    pynvml.nvmlInit()
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        return tuple(
            (str(pynvml.nvmlDeviceGetUUID(handle)), int(pynvml.nvmlDeviceGetMinorNumber(handle))) for handle in handles
        )
    finally:
        pynvml.nvmlShutdown()


@cache
def _capabilities() -> tuple[tuple[int, int], ...]:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        return tuple(pynvml.nvmlDeviceGetCudaComputeCapability(handle) for handle in handles)
    finally:
        pynvml.nvmlShutdown()
