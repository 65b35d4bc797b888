"""Reading a runner's memory: secret elements of its results before the judge's clock stops, and all of them once the
runner is stopped.

The time after the clock is not measured, so an output that is only read then could be computed then. The runner reports
at "done" where its outputs and gradients lie (``evaluator.protocol.control_page.Location``), and the judge reads there
by itself. On a CPU it reads through the kernel (``process_vm_readv``). On CUDA it maps the allocation, as it maps its
own blocks into runners (CUDA IPC).

No report of a runner is trusted. Addresses and strides are bounded before use, and a handle that cannot be opened is an
error code. On CUDA no kernel reads outside of a mapping, whose size the driver reports. A false report shows values
that are wrong, or that differ from those delivered later.
"""

from __future__ import annotations

import ctypes
import errno
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import torch

from evaluator.dtypes import as_signed, rows_of, scrub_value, tensor_on
from evaluator.judge.link import RunnerGone
from evaluator.protocol.control_page import Location
from evaluator.protocol.shared_memory import IpcHandle, Runs, TensorSpec, driver, open_handle, shares_elements, wrap

__all__ = ["DeviceMemory", "ElementPlaces", "ProcessMemory", "RunnerMemory", "Unreadable"]

_MAX_ADDRESS: Final = 2**56
"""The bound of a process's own addresses, with five levels of pages."""
_MAX_SPAN: Final = 2**48
_PIECE_BYTES: Final = 2**30
"""The kernel moves less than 2 GiB at a time."""
_SCRUB_BYTES: Final = 2**20
_KEPT_CALLS: Final = 4
"""An allocation that this many calls have not used is closed: it may have been given back, and would stay in use."""
_MAX_MAPPINGS: Final = 1024
_MAX_PLACES: Final = 1024
"""The kernel takes this many places at a time (``IOV_MAX``)."""


class Unreadable(Exception):
    """A tensor cannot be read at the location that the runner reported."""


@dataclass(frozen=True)
class ElementPlaces:
    """Secret elements of a tensor. ``flat``: int64 [count] on the judge's device, counted in the order of the tensor's
    indices. ``indices``: the same as [dimensions, count]."""

    flat: torch.Tensor
    indices: npt.NDArray[np.int64]
    _found: dict[tuple[int, ...], tuple[torch.Tensor, int]] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, flat: npt.NDArray[np.int64], shape: tuple[int, ...], there: torch.Tensor) -> ElementPlaces:
        """Return the places of the ``flat`` indices in a tensor of this shape; ``there``: the same indices on the
        judge's device."""
        indices = np.array(np.unravel_index(flat, shape)) if shape else np.empty((0, len(flat)), np.int64)
        return cls(there, indices)

    def offsets(self, spec: TensorSpec, strides: tuple[int, ...]) -> tuple[torch.Tensor, int]:
        """Return the offsets from the first element under ``strides``, in elements, and the span of the whole tensor.
        Raises ``Unreadable`` for strides that no tensor has, or that put several elements in one place."""
        strides = strides[: len(spec.shape)]
        if strides in self._found:
            return self._found[strides]
        span = _span_of(spec, strides)
        # One way for all strides. With a shorter one for the usual strides, a candidate with other strides would have
        # 0.08 ms more between its clocks than its baseline (seen on an H100).
        offsets = np.array(strides, np.int64) @ self.indices
        self._found[strides] = tensor_on(self.flat.device, offsets, torch.int64), span
        return self._found[strides]


def _span_of(spec: TensorSpec, strides: tuple[int, ...]) -> int:
    """Return the span of a tensor, in elements. Raises ``Unreadable`` for strides that no tensor has, or that put
    several elements in one place."""
    if len(strides) < len(spec.shape) or any(not 0 <= stride <= _MAX_SPAN for stride in strides):
        raise Unreadable("its strides are none of a tensor")
    span = _span(spec, strides)
    if span > _MAX_SPAN:
        raise Unreadable("its strides are none of a tensor")
    # A runner copies such a tensor before it says that it is done; the candidate can keep it from doing so.
    if shares_elements(spec.shape, strides):
        raise Unreadable("its elements share memory, and were to be written out")
    return span


def _span(spec: TensorSpec, strides: tuple[int, ...]) -> int:
    """Return the span of a tensor from its first to its last element, in elements."""
    return 1 + sum((size - 1) * stride for size, stride in zip(spec.shape, strides, strict=True))


@dataclass(frozen=True)
class _FileMapping:
    """Addresses ``begin`` to ``end``, which show ``file`` (device and inode) from ``offset`` on."""

    begin: int
    end: int
    offset: int
    file: tuple[str, str]


def _file_mapping(line: str) -> _FileMapping | None:
    """Return the mapping in a line of ``/proc/PID/maps``; ``None`` for memory without a file."""
    addresses, _, offset, device, inode = line.split(maxsplit=5)[:5]
    if inode == "0":
        return None
    begin, end = (int(address, 16) for address in addresses.split("-"))
    return _FileMapping(begin, end, int(offset, 16), (device, inode))


def _repeats(mappings: Sequence[_FileMapping], location: Location, spec: TensorSpec) -> bool:
    """Whether two of the mappings show the same part of a file in the memory of such a tensor."""
    span = _span(spec, location.strides[: len(spec.shape)])
    first, last = location.address, location.address + span * spec.torch_dtype.itemsize
    parts: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for mapping in mappings:
        begin, end = max(first, mapping.begin), min(last, mapping.end)
        if begin < end:
            part = mapping.offset + begin - mapping.begin
            parts.setdefault(mapping.file, []).append((part, part + end - begin))
    return any(before[1] > after[0] for found in parts.values() for before, after in pairwise(sorted(found)))


class RunnerMemory(ABC):
    """The memory of one side's runner.

    ``was_open``: whether this call has read through a mapping that an earlier call had opened. Its memory may have been
    given back since.
    """

    was_open = False

    @abstractmethod
    def read(self, location: Location, spec: TensorSpec, places: ElementPlaces) -> torch.Tensor:
        """Return the elements at ``places`` of a tensor of ``spec`` at ``location``, on the judge's device. Raises
        ``Unreadable`` and ``RunnerGone``."""

    @abstractmethod
    def take(self, location: Location, spec: TensorSpec, target: torch.Tensor) -> None:
        """Copy a whole tensor to ``target``, which is of its shape and dtype. Raises as ``read`` does."""

    @abstractmethod
    def rows(self, location: Location, spec: TensorSpec, rows: torch.Tensor) -> torch.Tensor:
        """Return a copy of some rows of a tensor, int64 [count], in the judge's own memory. Raises as ``read`` does."""

    @abstractmethod
    def scrub(self, location: Location, spec: TensorSpec) -> None:
        """Overwrite a tensor that was taken, where its runner does not do so by itself. Call it while the runner's
        processes are stopped. Raises as ``read`` does."""

    @abstractmethod
    def first_repeated(self, tensors: Sequence[tuple[Location, TensorSpec]]) -> int | None:
        """Return the index of the first tensor whose memory is mapped in several places of it, so that a value written
        once appears many times; ``None`` without any. Call it while the runner's processes are stopped."""

    @abstractmethod
    def end_call(self) -> None:
        """End a call: outside of the clock, close mappings that were not used for a while."""

    @abstractmethod
    def close(self) -> None:
        """Close everything of the runner's. It can be read again afterwards."""


class ProcessMemory(RunnerMemory):
    """The memory of a process on a CPU. ``pid``: of the runner's first process, as seen from here."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.process_vm_readv.restype = self._libc.process_vm_writev.restype = ctypes.c_ssize_t

    def read(self, location: Location, spec: TensorSpec, places: ElementPlaces) -> torch.Tensor:
        offsets, span = places.offsets(spec, location.strides)
        itemsize, count = spec.torch_dtype.itemsize, len(places.flat)
        _require_address(location, span * itemsize)
        found = torch.empty(count, dtype=spec.torch_dtype)
        remote = torch.empty((count, 2), dtype=torch.int64)  # struct iovec: address and length
        torch.mul(offsets, itemsize, out=remote[:, 0]).add_(location.address)
        remote[:, 1] = itemsize
        self._move(self._libc.process_vm_readv, found.data_ptr(), found.nbytes, remote.data_ptr(), count)
        return found

    def take(self, location: Location, spec: TensorSpec, target: torch.Tensor) -> None:
        strides = location.strides[: len(spec.shape)]
        if target.is_contiguous() and strides == target.stride():
            _require_address(location, target.nbytes)
            self._move_span(self._libc.process_vm_readv, location.address, target)
        else:
            target.copy_(self._packed(location, spec)[2])

    def rows(self, location: Location, spec: TensorSpec, rows: torch.Tensor) -> torch.Tensor:
        strides, whole = location.strides[: len(spec.shape)], torch.empty(spec.shape, dtype=spec.torch_dtype)
        if strides != whole.stride():
            return rows_of(self._packed(location, spec)[2], rows)
        _require_address(location, whole.nbytes)
        found = torch.empty((len(rows), *spec.shape[1:]), dtype=spec.torch_dtype)
        size = found.nbytes // max(1, len(rows))
        remote = torch.stack([rows * size + location.address, torch.full_like(rows, size)], dim=1)
        self._move_runs(self._libc.process_vm_readv, remote, found)
        return found

    def scrub(self, location: Location, spec: TensorSpec) -> None:
        span = _span_of(spec, location.strides[: len(spec.shape)])
        if span == math.prod(spec.shape):
            _require_address(location, spec.size_bytes)
            each = min(span, _SCRUB_BYTES // spec.torch_dtype.itemsize)
            content = torch.full((each,), scrub_value(spec.torch_dtype), dtype=spec.torch_dtype)
            for start in range(0, span, max(1, each)):
                at = location.address + start * content.itemsize
                self._move_span(self._libc.process_vm_writev, at, content[: span - start])
            return
        # The bytes between its elements are written back unchanged: no process writes while all are stopped.
        remote, memory, tensor = self._packed(location, spec)
        tensor.fill_(scrub_value(spec.torch_dtype))
        self._move_runs(self._libc.process_vm_writev, remote, memory)

    def _packed(self, location: Location, spec: TensorSpec) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return a copy of the runs of memory that a tensor lies in (see ``Runs``): addresses and lengths, int64 [runs,
        2], their content, and the tensor in it."""
        strides, itemsize = location.strides[: len(spec.shape)], spec.torch_dtype.itemsize
        _require_address(location, _span_of(spec, strides) * itemsize)
        runs = Runs.of(spec.shape, strides, itemsize)
        if not runs.are_close(spec.shape, itemsize):
            raise Unreadable("its elements lie far apart, and were to be written out")
        begins = torch.zeros(1, dtype=torch.int64)
        for size, stride in runs.outer:
            begins = (torch.arange(size)[:, None] * stride + begins).reshape(-1)
        remote = torch.stack([begins * itemsize + location.address, torch.full_like(begins, runs.length * itemsize)], 1)
        memory = torch.empty(runs.count * runs.length, dtype=spec.torch_dtype)
        self._move_runs(self._libc.process_vm_readv, remote, memory)
        return remote, memory, memory.as_strided(spec.shape, runs.strides)

    def _move_runs(self, move: Callable[..., int], remote: torch.Tensor, local: torch.Tensor) -> None:
        """Move a contiguous tensor to or from runs of equal length, one behind the other: addresses and lengths in
        bytes, int64 [runs, 2]."""
        size = local.nbytes // max(1, len(remote))
        if not size or size > _PIECE_BYTES:
            octets = local.view(-1).view(torch.uint8)
            for number, address in enumerate(remote[:, 0].tolist() if size else ()):
                self._move_span(move, address, octets[number * size : (number + 1) * size])
            return
        each = min(_MAX_PLACES, _PIECE_BYTES // size)
        for start in range(0, len(remote), each):
            part = remote[start : start + each]
            self._move(move, local.data_ptr() + start * size, len(part) * size, part.data_ptr(), len(part))

    def _move_span(self, move: Callable[..., int], address: int, local: torch.Tensor) -> None:
        """Move all of a contiguous tensor to or from ``address``."""
        for start in range(0, local.nbytes, _PIECE_BYTES):
            size = min(_PIECE_BYTES, local.nbytes - start)
            remote = (ctypes.c_uint64 * 2)(address + start, size)
            self._move(move, local.data_ptr() + start, size, ctypes.addressof(remote), 1)

    def _move(self, move: Callable[..., int], at: int, size: int, remote: int, count: int) -> None:
        """Move ``size`` bytes between ``at`` and the ``count`` places whose ``struct iovec`` lie at ``remote``."""
        local = (ctypes.c_uint64 * 2)(at, size)
        got = move(
            ctypes.c_int(self._pid),
            local,
            ctypes.c_ulong(1),
            ctypes.c_void_p(remote),
            ctypes.c_ulong(count),
            ctypes.c_ulong(0),
        )
        if got < 0 and ctypes.get_errno() == errno.ESRCH:
            raise RunnerGone
        if got != size:
            raise Unreadable(os.strerror(ctypes.get_errno()) if got < 0 else "it is not all there")

    def first_repeated(self, tensors: Sequence[tuple[Location, TensorSpec]]) -> int | None:
        """Search the kernel's list of mappings for a part of a file that occurs twice. All memory that can be mapped
        twice belongs to a file, named or not."""
        try:
            lines = Path(f"/proc/{self._pid}/maps").read_text(errors="replace").splitlines()
        except OSError:
            return None  # the process is gone, or hides its mappings as it does its memory, which is not read then
        mappings = [mapping for mapping in map(_file_mapping, lines) if mapping is not None]
        return next((index for index, tensor in enumerate(tensors) if _repeats(mappings, *tensor)), None)

    def end_call(self) -> None:
        pass  # no mapping is held

    def close(self) -> None:
        pass


def _require_address(location: Location, size: int) -> None:
    """Raise ``Unreadable`` where ``size`` bytes from the location's address on cannot be in a process."""
    if not 0 < location.address <= _MAX_ADDRESS - size:
        raise Unreadable("its address is none of a process")


@dataclass
class _Mapping:
    """An allocation of the runner's, opened here. ``begin``: bytes from the begin of ``memory`` to the begin of the
    handle's allocation."""

    address: int
    memory: torch.Tensor
    begin: int
    last_used: int


class DeviceMemory(RunnerMemory):
    """The memory of a process on a CUDA device. Allocations are opened once, since that takes longer than reading."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._mappings: dict[bytes, _Mapping] = {}
        self._call = 0

    def read(self, location: Location, spec: TensorSpec, places: ElementPlaces) -> torch.Tensor:
        offsets, span = places.offsets(spec, location.strides)
        return as_signed(self._elements(location, spec, span)).index_select(0, offsets)

    def take(self, location: Location, spec: TensorSpec, target: torch.Tensor) -> None:
        target.copy_(self._tensor(location, spec))

    def rows(self, location: Location, spec: TensorSpec, rows: torch.Tensor) -> torch.Tensor:
        return rows_of(self._tensor(location, spec), rows)

    def scrub(self, location: Location, spec: TensorSpec) -> None:
        """Do nothing: a runner on CUDA does it by itself before its next call, outside of every clock."""

    def _tensor(self, location: Location, spec: TensorSpec) -> torch.Tensor:
        strides = location.strides[: len(spec.shape)]
        return self._elements(location, spec, _span_of(spec, strides)).as_strided(spec.shape, strides)

    def _elements(self, location: Location, spec: TensorSpec, span: int) -> torch.Tensor:
        """Return ``span`` elements of the runner's memory, from the begin of a tensor on. Raises ``Unreadable``."""
        mapping, itemsize = self._open(location.handle), spec.torch_dtype.itemsize
        begin = mapping.begin + location.address
        # The bounds of the read: a fault would end the judge's context.
        if begin % itemsize or not 0 <= begin <= mapping.memory.numel() - span * itemsize:
            raise Unreadable("it is not within its allocation")
        return mapping.memory[begin : begin + span * itemsize].view(spec.torch_dtype)

    def first_repeated(self, _tensors: Sequence[tuple[Location, TensorSpec]]) -> int | None:
        """Return ``None``: memory that a device maps in several places cannot be opened by its handle."""
        return None

    def end_call(self) -> None:
        self._call += 1
        self.was_open = False
        for handle, mapping in list(self._mappings.items()):
            if self._call - mapping.last_used > _KEPT_CALLS:
                self._close(handle)

    def close(self) -> None:
        for handle in list(self._mappings):
            self._close(handle)

    def _open(self, handle: bytes) -> _Mapping:
        mapping = self._mappings.get(handle)
        if mapping is not None:
            self.was_open = self.was_open or mapping.last_used < self._call
            mapping.last_used = self._call
            return mapping
        if len(self._mappings) >= _MAX_MAPPINGS:
            raise Unreadable(f"more than {_MAX_MAPPINGS} allocations are in use")
        address = ctypes.c_uint64()
        error = open_handle(address, IpcHandle.from_buffer_copy(handle))
        if error:
            raise Unreadable(f"CUDA error {error}")
        base, size = ctypes.c_uint64(), ctypes.c_size_t()
        error = driver().cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(size), address)
        if error or not base.value <= address.value < base.value + size.value:
            driver().cuIpcCloseMemHandle(address)
            raise Unreadable(f"CUDA error {error}")
        memory = wrap(base.value, size.value, self._device)
        mapping = _Mapping(address.value, memory, address.value - base.value, self._call)
        self._mappings[handle] = mapping
        return mapping

    def _close(self, handle: bytes) -> None:
        mapping = self._mappings.pop(handle)
        # A fault of the context shows in the next request; one that shows here is the same.
        torch.cuda.synchronize(self._device)
        mapping.memory = torch.empty(0)
        # The allocation may have ended with its process: then there is nothing to close.
        driver().cuIpcCloseMemHandle(ctypes.c_uint64(mapping.address))
