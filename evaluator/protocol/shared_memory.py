"""Tensors in memory that judge and runner share: layouts, and blocks on the CPU and on a CUDA device.

A *block* is one allocation that holds a fixed list of tensors and nothing else. On a CPU it is a memfd that both sides
map. On CUDA it is one ``cuMemAlloc`` of a multiple of 2 MiB, opened on the other side by CUDA IPC. IPC maps the whole
underlying allocation, so a block must never share one with anything private.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

import torch
import torch.utils.dlpack

from evaluator.dtypes import has_gradients
from evaluator.protocol.control_page import sealed_memory

__all__ = [
    "GRANULE",
    "Block",
    "BlockLayout",
    "IpcHandle",
    "Runs",
    "TensorSpec",
    "check",
    "create_block",
    "driver",
    "is_dense",
    "open_block",
    "open_handle",
    "shares_elements",
    "wrap",
]

GRANULE: Final = 2 * 2**20
"""Bytes: no two allocations of a device share one of these."""
_MAX_SPARE: Final = 2**20
"""The most bytes between the elements of a result that may be moved with them, if the elements are fewer."""
_RUN_BYTES: Final = 256
_ALIGNMENT: Final = 512
_IPC_LAZY_PEER: Final = 1


@dataclass(frozen=True)
class TensorSpec:
    """Shape and dtype of a tensor; ``dtype`` as torch names it (``float32``).

    ``strides``, in elements, are for a tensor whose dimensions lie in another order in memory, without gaps (channels
    last, transposed); ``None``: contiguous.
    """

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...] | None = None

    @classmethod
    def of(cls, tensor: torch.Tensor) -> TensorSpec:
        """The specification of ``tensor``, as if it were contiguous."""
        return cls(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))

    @classmethod
    def laid_out(cls, tensor: torch.Tensor) -> TensorSpec:
        """The specification of ``tensor``, with its strides where its memory has no gaps; else as if contiguous."""
        contiguous = tensor.is_contiguous() or not is_dense(tensor)
        return replace(cls.of(tensor), strides=None if contiguous else tuple(tensor.stride()))

    @property
    def is_differentiable(self) -> bool:
        """Whether gradients flow back to such a tensor."""
        return has_gradients(self.torch_dtype)

    @property
    def contiguous(self) -> TensorSpec:
        return replace(self, strides=None)

    def arrange(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor or some rows of it, with its dimensions in memory in the order that they have here."""
        strides = self.strides
        if strides is None:
            return tensor
        order = sorted(range(len(self.shape)), key=strides.__getitem__, reverse=True)
        inverse = [order.index(axis) for axis in range(len(order))]
        return tensor.permute(order).contiguous().permute(inverse)

    @property
    def torch_dtype(self) -> torch.dtype:
        dtype = getattr(torch, self.dtype)
        assert isinstance(dtype, torch.dtype)
        return dtype

    @property
    def size_bytes(self) -> int:
        return math.prod(self.shape) * self.torch_dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class BlockLayout:
    """The tensors of a block, in order."""

    tensors: tuple[TensorSpec, ...]

    @property
    def offsets(self) -> tuple[int, ...]:
        positions, at = [], 0
        for tensor in self.tensors:
            positions.append(at)
            at += -(-tensor.size_bytes // _ALIGNMENT) * _ALIGNMENT
        return tuple(positions)

    @property
    def size_bytes(self) -> int:
        """Bytes to allocate on CUDA, and the most on a CPU: a multiple of 2 MiB, at least one granule."""
        return self.rounded_bytes(GRANULE)

    def rounded_bytes(self, granule: int) -> int:
        """The bytes of the tensors, as a multiple of ``granule`` bytes and at least one."""
        used = sum(-(-tensor.size_bytes // _ALIGNMENT) * _ALIGNMENT for tensor in self.tensors)
        return max(1, -(-used // granule)) * granule

    def views(self, memory: torch.Tensor) -> list[torch.Tensor]:
        """Return the tensors in ``memory`` (uint8, as long as they need).

        Each has a storage of its own that begins and ends with it, as if torch had allocated it.
        """
        return [
            _own_storage(memory[offset : offset + tensor.size_bytes], tensor)
            for offset, tensor in zip(self.offsets, self.tensors, strict=True)
        ]

    def to_json(self) -> list[list[Any]]:
        return [[list(tensor.shape), tensor.dtype, tensor.strides] for tensor in self.tensors]

    @classmethod
    def from_json(cls, data: Sequence[Sequence[Any]]) -> BlockLayout:
        return cls(
            tuple(
                TensorSpec(tuple(shape), dtype, None if strides is None else tuple(strides))
                for shape, dtype, strides in data
            )
        )


def shares_elements(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether several elements of a strided tensor may be one place in memory, as in an expanded view.

    ``strides``: in elements, and not negative. True as well for dimensions that lie between each other, as those of no
    usual view do.
    """
    if 0 in shape:
        return False
    span = 1
    for stride, size in sorted((stride, size) for stride, size in zip(strides, shape, strict=True) if size > 1):
        if stride < span:
            return True
        span += (size - 1) * stride
    return False


@dataclass(frozen=True)
class Runs:
    """The memory of a strided tensor, as runs in which each page has some of its elements: moving them touches no other
    page.

    ``length``: elements of a run, including those between the tensor's own. ``outer``: sizes and strides of the
    dimensions that count runs, the nearest first. ``strides``: those of the tensor once the runs lie one behind the
    other.
    """

    length: int
    outer: tuple[tuple[int, int], ...]
    strides: tuple[int, ...]

    @classmethod
    def of(cls, shape: Sequence[int], strides: Sequence[int], itemsize: int) -> Runs:
        """Find the runs of a tensor whose elements share no memory, with ``itemsize`` bytes each."""
        length, count, packed = 1, 1, list(strides)
        outer: list[tuple[int, int]] = []
        for axis in sorted((axis for axis, size in enumerate(shape) if size > 1), key=lambda axis: strides[axis]):
            if not outer and (strides[axis] - length) * itemsize < mmap.PAGESIZE:
                length += (shape[axis] - 1) * strides[axis]
            else:
                outer.append((shape[axis], strides[axis]))
                packed[axis] = length * count
                count *= shape[axis]
        return cls(length, tuple(outer), tuple(packed))

    @property
    def count(self) -> int:
        return math.prod(size for size, _ in self.outer)

    def are_close(self, shape: Sequence[int], itemsize: int) -> bool:
        """Whether little is moved besides the elements of such a tensor.

        A run counts for some bytes in any case, because each one is described by itself.
        """
        size = math.prod(shape) * itemsize
        return self.count * max(self.length * itemsize, _RUN_BYTES) - size <= max(size, _MAX_SPARE)


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether its memory has no gaps, and no two elements of it are in one place."""
    expected = 1
    for stride, extent in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if extent > 1 and stride != expected:
            return False
        expected *= extent
    return True


def _own_storage(octets: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    """A tensor over the memory of ``octets``, which is all that its storage has."""
    storage = torch.utils.dlpack.from_dlpack(octets).untyped_storage()
    tensor = torch.empty(0, dtype=spec.torch_dtype, device=octets.device)
    return tensor.set_(storage, 0, spec.shape, spec.strides or _contiguous_strides(spec.shape))


def _contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(math.prod(max(1, extent) for extent in shape[axis + 1 :]) for axis in range(len(shape)))


class Block:
    """A block and its tensors. ``handle`` lets the other side open it: JSON, plus a descriptor on the CPU."""

    def __init__(self, layout: BlockLayout, memory: torch.Tensor, handle: Mapping[str, Any], fd: int | None) -> None:
        self.layout = layout
        self.memory = memory
        self.tensors = layout.views(memory)
        self.handle = handle
        self.fd = fd
        self._release: Callable[[], None] | None = None

    def close(self) -> None:
        """Give the memory back, or stop using the other side's. The tensors must not be used afterwards."""
        self.tensors = []
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None
        release, self._release = self._release, None
        if release is not None:
            torch.cuda.synchronize()
            release()
        self.memory = torch.empty(0)


def create_block(layout: BlockLayout, device: torch.device) -> Block:
    """Allocate a block on ``device``. Raises ``torch.OutOfMemoryError`` or ``MemoryError`` where there is no room."""
    if device.type == "cpu":
        # All of it is overwritten within the judge's clock, so it is no larger than its tensors.
        size = layout.rounded_bytes(mmap.PAGESIZE)
        fd = sealed_memory("tensors", size)
        memory = torch.frombuffer(mmap.mmap(fd, size), dtype=torch.uint8)
        return Block(layout, memory, {"layout": layout.to_json(), "bytes": size}, fd)
    size = layout.size_bytes
    torch.zeros(1, device=device)  # makes the primary context current on this thread
    address = ctypes.c_uint64()
    error = driver().cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size))
    if error == _OUT_OF_MEMORY:
        raise torch.OutOfMemoryError(f"no room for a block of {size} bytes on {device}")
    check(error, "cuMemAlloc")
    ipc = IpcHandle()
    check(driver().cuIpcGetMemHandle(ctypes.byref(ipc), address), "cuIpcGetMemHandle")
    handle = {"layout": layout.to_json(), "bytes": size, "ipc": bytes(ipc.reserved).hex()}
    block = Block(layout, wrap(address.value, size, device), handle, None)
    block._release = lambda: check(driver().cuMemFree_v2(address), "cuMemFree")
    return block


def open_block(handle: Mapping[str, Any], fd: int | None, device: torch.device) -> Block:
    """Open the other side of ``create_block``."""
    layout, size = BlockLayout.from_json(handle["layout"]), int(handle["bytes"])
    if "ipc" not in handle:
        assert fd is not None
        memory = torch.frombuffer(mmap.mmap(fd, size), dtype=torch.uint8)
        os.close(fd)
        return Block(layout, memory, handle, None)
    torch.zeros(1, device=device)
    ipc = IpcHandle.from_buffer_copy(bytes.fromhex(handle["ipc"]))
    address = ctypes.c_uint64()
    check(open_handle(address, ipc), "cuIpcOpenMemHandle")
    block = Block(layout, wrap(address.value, size, device), handle, None)
    block._release = lambda: check(driver().cuIpcCloseMemHandle(address), "cuIpcCloseMemHandle")
    return block


_OUT_OF_MEMORY: Final = 2


class IpcHandle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_ubyte * 64),)


@cache
def driver() -> ctypes.CDLL:
    """CUDA's driver, for operations that torch does not offer."""
    return ctypes.CDLL("libcuda.so.1")


def open_handle(address: ctypes.c_uint64, handle: IpcHandle) -> int:
    """Map another process's allocation; returns CUDA's error code, and its begin here in ``address``."""
    return int(driver().cuIpcOpenMemHandle_v2(ctypes.byref(address), handle, ctypes.c_uint(_IPC_LAZY_PEER)))


def check(error: int, call: str) -> None:
    """Raises ``RuntimeError`` where ``call`` to the driver failed."""
    if error:
        raise RuntimeError(f"{call} failed with CUDA error {error}")


class _RawMemory:
    """Bytes at a device address, for ``torch.as_tensor``."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
            "strides": None,
        }


def wrap(address: int, size: int, device: torch.device) -> torch.Tensor:
    """Return bytes of a device as a tensor of uint8, which does not own them."""
    return torch.as_tensor(_RawMemory(address, size), device=device)
