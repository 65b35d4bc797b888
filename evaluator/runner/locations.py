"""The locations of a call's tensors, so that the judge can read them before its clock stops."""

from __future__ import annotations

import ctypes
from typing import Any, Final

import torch

from evaluator.protocol.control_page import MAX_DIMENSIONS, Location, LocationKind
from evaluator.protocol.shared_memory import GRANULE, IpcHandle, Runs, driver, shares_elements

__all__ = ["ABSENT", "SHARED", "Locator"]

ABSENT: Final = Location(LocationKind.ABSENT).encode()
SHARED: Final = Location(LocationKind.SHARED).encode()


class Locator:
    """Finds the locations of tensors on one device. ``readable``: whether the judge can read this process's memory."""

    def __init__(self, device: torch.device, *, readable: bool) -> None:
        self._is_cuda = device.type == "cuda"
        self._readable = readable

    def locate(self, value: Any, target: torch.Tensor) -> bytes | None:
        """Return the encoded location of ``value``, which is to be delivered to ``target``.

        ``None`` where its bits cannot be read there from outside. Its layout, shape, dtype or device may differ, or its
        memory may be closed to other processes. On a CPU its elements may lie far apart.
        """
        if not self._readable or type(value) not in (torch.Tensor, torch.nn.Parameter):
            return None
        is_plain = (
            value.layout is torch.strided
            and value.device.type == target.device.type
            and value.dtype == target.dtype
            and value.shape == target.shape
            and value.dim() <= MAX_DIMENSIONS
            and not value.is_conj()
            and not value.is_neg()
        )
        if not is_plain:
            return None
        if not self._is_cuda or not value.numel():
            # Scattered elements are copied within the call: reading them would touch the memory between them.
            if not shares_elements(value.shape, value.stride()):
                runs = Runs.of(value.shape, value.stride(), value.itemsize)
                if not runs.are_close(value.shape, value.itemsize):
                    return None
            return Location(LocationKind.PRIVATE, value.data_ptr(), value.stride()).encode()
        allocation = _allocation_of(value.data_ptr())
        if allocation is None:
            return None
        base, handle = allocation
        return Location(LocationKind.PRIVATE, value.data_ptr() - base, value.stride(), handle).encode()


def _allocation_of(address: int) -> tuple[int, bytes] | None:
    """Return begin and handle of the allocation of a device address, if another process can open it.

    That is memory of ``cudaMalloc`` in whole granules, as PyTorch's allocator takes it. A handle is never kept: its
    allocation may have been given back, and another one may be in its place.
    """
    base, size, handle = ctypes.c_uint64(), ctypes.c_size_t(), IpcHandle()
    if driver().cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(address)):
        return None
    if base.value % GRANULE or size.value % GRANULE:
        return None
    if driver().cuIpcGetMemHandle(ctypes.byref(handle), base):
        return None
    return base.value, bytes(handle.reserved)
