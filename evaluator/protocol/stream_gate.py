"""A gate on a CUDA device: a runner's work behind it begins once the judge has opened it.

The judge opens it on its own stream, behind all of its earlier work; the runner has its stream wait. So neither process
waits for the device, and still one's work follows the other's, on the multiprocessors and on the copy engines alike.
(Stream memory operations of the CUDA driver, ``cuStreamWriteValue32`` and ``cuStreamWaitValue32``, on memory that both
processes map.)
"""

from __future__ import annotations

import ctypes
from typing import Final

import torch

from evaluator.protocol.shared_memory import Block, BlockLayout, TensorSpec, check, driver

__all__ = ["GATE", "await_gate", "open_gate"]

GATE: Final = BlockLayout((TensorSpec((1,), "int32"),))
"""The memory of a gate: a block of its own, zero at first."""
_AT_LEAST: Final = 0


def open_gate(gate: Block, number: int) -> None:
    """Judge: let work pass that waits for ``number`` or less, once the device has done all of its earlier work."""
    check(driver().cuStreamWriteValue32_v2(*_operands(gate, number), ctypes.c_uint(0)), "cuStreamWriteValue32")


def await_gate(gate: Block, number: int) -> None:
    """Runner: have the device's work from now on wait until the gate is open for ``number``."""
    check(driver().cuStreamWaitValue32_v2(*_operands(gate, number), ctypes.c_uint(_AT_LEAST)), "cuStreamWaitValue32")


def _operands(gate: Block, number: int) -> tuple[ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32]:
    stream = torch.cuda.current_stream().cuda_stream
    return ctypes.c_void_p(stream), ctypes.c_uint64(gate.memory.data_ptr()), ctypes.c_uint32(number)
