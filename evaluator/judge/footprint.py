"""The most memory that tensors take at once while something is computed, on any device, the meta device included."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

__all__ = ["Footprint"]


class Footprint(TorchDispatchMode):  # type: ignore[no-untyped-call] # torch leaves its base unannotated
    """Watch the memory of tensors that operators return meanwhile, until it is freed.

    ``peak_bytes``: the most that was in use at once. ``peak_double_bytes``: the same with floating-point numbers in
    float64. ``largest_double_bytes``: those of the largest tensor in float64. ``operators``: their number. Memory from
    before is not counted, and neither is what an operator takes for itself alone.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak_bytes = self.peak_double_bytes = self.largest_double_bytes = 0
        self.operators = 0
        self._bytes = self._double_bytes = 0
        self._known: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    def __torch_dispatch__(
        self, func: Any, _types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.operators += 1
        # A view, or a result in place, has the memory of an argument.
        before = {_address(each) for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)}
        found = func(*args, **(kwargs or {}))
        for each in tree_leaves(found):
            if isinstance(each, torch.Tensor) and _address(each) not in before:
                self._note(each)
        return found

    def _note(self, tensor: torch.Tensor) -> None:
        address, storage = _address(tensor), tensor.untyped_storage()
        if address in self._known:
            return
        size, itemsize = storage.nbytes(), tensor.dtype.itemsize
        wider = 16 if tensor.is_complex() else 8 if tensor.is_floating_point() else itemsize
        double_size = size // itemsize * max(itemsize, wider)

        def freed(_storage: weakref.ref[torch.UntypedStorage]) -> None:
            del self._known[address]
            self._bytes -= size
            self._double_bytes -= double_size

        self._known[address] = weakref.ref(storage, freed)
        self._bytes += size
        self._double_bytes += double_size
        self.largest_double_bytes = max(self.largest_double_bytes, double_size)
        self.peak_bytes = max(self.peak_bytes, self._bytes)
        self.peak_double_bytes = max(self.peak_double_bytes, self._double_bytes)


def _address(tensor: torch.Tensor) -> int:
    address: int = tensor.untyped_storage()._cdata
    return address
