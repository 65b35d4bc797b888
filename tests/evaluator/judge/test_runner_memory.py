"""Reading the runner's memory at "done": what is read, and what a lie about its place leads to."""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
import sys

import numpy as np
import numpy.typing as npt
import pytest
import torch

from evaluator.judge.link import RunnerGone
from evaluator.judge.runner_memory import DeviceMemory, ElementPlaces, ProcessMemory, Unreadable
from evaluator.protocol.control_page import Location, LocationKind
from evaluator.protocol.shared_memory import TensorSpec, shares_elements
from evaluator.runner.locations import Locator

_SHAPE = (6, 10, 4)


def _places(shape: tuple[int, ...], device: str = "cpu") -> ElementPlaces:
    count = 1
    for size in shape:
        count *= size
    return _at(np.random.default_rng().integers(count, size=64), shape, device)


def _at(flat: npt.NDArray[np.int64], shape: tuple[int, ...], device: str = "cpu") -> ElementPlaces:
    return ElementPlaces.of(flat, shape, torch.from_numpy(flat).to(device))


def _own(tensor: torch.Tensor) -> Location:
    return Location(LocationKind.PRIVATE, tensor.data_ptr(), tensor.stride())


_LAYOUTS = {
    "contiguous": lambda tensor: tensor.contiguous(),
    "permuted": lambda tensor: tensor.permute(2, 0, 1).contiguous().permute(1, 2, 0),
    "every other": lambda tensor: torch.stack([tensor, tensor.flip(0)], -1)[..., 0],
    "part of a larger one": lambda tensor: torch.cat([tensor, tensor, tensor])[6:12],
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.bool, torch.complex64])
@pytest.mark.parametrize("layout", _LAYOUTS)
def test_elements_are_read_wherever_they_lie(layout: str, dtype: torch.dtype) -> None:
    tensor = _LAYOUTS[layout](torch.arange(240).remainder(101).view(_SHAPE).to(dtype))
    places = _places(_SHAPE)
    found = ProcessMemory(os.getpid()).read(_own(tensor), TensorSpec.of(tensor), places)
    assert torch.equal(found, tensor.reshape(-1)[places.flat])


def test_a_scalar_is_read() -> None:
    tensor = torch.tensor(3.5)
    found = ProcessMemory(os.getpid()).read(_own(tensor), TensorSpec((), "float32"), _places(()))
    assert found.tolist() == [3.5] * 64


_HOLDER = """
import ctypes
held = ctypes.create_string_buffer(b"theirs")
print(ctypes.addressof(held), flush=True)
input()
"""


def test_another_process_is_read_and_not_its_own() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        address = int(other.stdout.readline())
        memory = ProcessMemory(other.pid)
        spec, places = TensorSpec((6,), "uint8"), _at(np.arange(6), (6,))
        location = Location(LocationKind.PRIVATE, address, (1,))
        assert bytes(memory.read(location, spec, places).tolist()) == b"theirs"
        other.stdin.write("\n")
        other.stdin.close()
        other.wait()
        with pytest.raises(RunnerGone):
            memory.read(location, spec, places)


@pytest.mark.parametrize("address", [0, 1, 2**47 - 4096, 2**56, 2**63, 2**64 - 1])
def test_an_address_of_nothing_is_unreadable(address: int) -> None:
    with pytest.raises(Unreadable):
        ProcessMemory(os.getpid()).read(
            Location(LocationKind.PRIVATE, address, (40, 4, 1)), TensorSpec(_SHAPE, "float32"), _places(_SHAPE)
        )


@pytest.mark.parametrize("strides", [(-1, 4, 1), (2**62, 4, 1), (2**48, 2**48, 2**48), (4, 1), ()])
def test_strides_of_no_tensor_are_unreadable(strides: tuple[int, ...]) -> None:
    tensor = torch.zeros(_SHAPE)
    with pytest.raises(Unreadable):
        ProcessMemory(os.getpid()).read(
            Location(LocationKind.PRIVATE, tensor.data_ptr(), strides), TensorSpec.of(tensor), _places(_SHAPE)
        )


def test_a_location_is_told_of_plain_tensors_of_the_expected_kind_alone() -> None:
    locator, target = Locator(torch.device("cpu"), readable=True), torch.zeros(4, 4)
    assert locator.locate(torch.zeros(4, 4), target) is not None
    assert locator.locate(torch.zeros(4, 4).t(), target) is not None

    class Lazy(torch.Tensor):
        """Computes when it is looked at, perhaps."""

    for other in (
        None,
        torch.zeros(4, 4, dtype=torch.float64),
        torch.zeros(4, 2),
        torch.zeros(4, 4, device="meta"),
        torch.zeros(4, 4).to_sparse(),
        torch.zeros(4, 4).as_subclass(Lazy),
        torch._neg_view(torch.zeros(4, 4)),
    ):
        assert locator.locate(other, target) is None
    assert Locator(torch.device("cpu"), readable=False).locate(torch.zeros(4, 4), target) is None


def test_what_is_expanded_shares_elements() -> None:
    tensor = torch.zeros(4, 6)
    for shared in (
        tensor[:1].expand(4, 6),
        torch.zeros(()).expand(3),
        torch.arange(9).as_strided((4, 6), (1, 1)),
        torch.zeros(4, 7)[:, :1].expand(4, 6),
        torch.zeros(4, 100).as_strided((4, 3, 5), (100, 0, 1)),
    ):
        assert shares_elements(shared.shape, shared.stride())
        with pytest.raises(Unreadable, match="share memory"):
            ProcessMemory(os.getpid()).read(_own(shared), TensorSpec.of(shared), _places(tuple(shared.shape)))
    for own in (
        tensor,
        tensor.t(),
        tensor[:, ::2],
        tensor[:0].expand(0, 6),
        tensor[:1].expand(1, 6),
        torch.zeros(()),
        torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last),
    ):
        assert not shares_elements(own.shape, own.stride())


def _mapped(places: list[int], size: int) -> torch.Tensor:
    """Pages of a file in memory, by their places in it, mapped beside each other, as floats."""
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    pointer, length, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    libc.mmap.argtypes = [pointer, length, number, number, number, ctypes.c_long]
    file = os.memfd_create("pages")
    os.ftruncate(file, size * (max(places) + 1))
    base = libc.mmap(None, size * len(places), 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    for number_of, place in enumerate(places):
        at = base + number_of * size
        assert libc.mmap(at, size, 3, mmap.MAP_SHARED | 0x10, file, place * size) == at
    os.close(file)
    return torch.frombuffer((ctypes.c_float * (size * len(places) // 4)).from_address(base), dtype=torch.float32)


def _located(tensor: torch.Tensor) -> tuple[Location, TensorSpec]:
    return _own(tensor), TensorSpec.of(tensor)


def test_pages_that_are_mapped_several_times_are_seen_and_others_are_not() -> None:
    memory, page = ProcessMemory(os.getpid()), mmap.PAGESIZE
    repeated, once, private = _mapped([0, 1, 1, 2], page), _mapped([2, 0, 1], page), torch.zeros(4 * page)
    rows = repeated.view(4, -1)
    several, others = [repeated, rows[1:3]], [once, private, rows[:2], rows[2:], rows[:0]]
    for tensor in several:
        assert memory.first_repeated([_located(other) for other in [*others, tensor, once]]) == len(others)
    assert memory.first_repeated([_located(other) for other in others]) is None
    assert ProcessMemory(2**22 + 1).first_repeated([_located(repeated)]) is None, "there is no such process"


@pytest.mark.gpu
@pytest.mark.parametrize("bad", [bytes(64), bytes(range(64)), b"\xff" * 64])
def test_a_handle_of_nothing_is_unreadable_and_the_context_goes_on(bad: bytes) -> None:
    device = torch.device("cuda")
    kept = torch.arange(8, device=device)
    memory = DeviceMemory(device)
    with pytest.raises(Unreadable):
        memory.read(
            Location(LocationKind.PRIVATE, 0, (1,), bad), TensorSpec((8,), "int64"), _places((8,), device="cuda")
        )
    memory.close()
    torch.cuda.synchronize()
    assert kept.sum().item() == 28


_EXPORTER = """
import sys, torch
from evaluator.runner.locations import Locator
tensor = torch.arange(2**20, device="cuda", dtype=torch.float32).view(1024, 1024)
torch.cuda.synchronize()
for value in (tensor, tensor.t()):
    print(Locator(torch.device("cuda"), readable=True).locate(value, value).hex(), flush=True)
input()
"""


@pytest.mark.gpu
def test_device_memory_of_another_process_is_read_within_its_bounds() -> None:
    device = torch.device("cuda")
    spec, places = TensorSpec((1024, 1024), "float32"), _places((1024, 1024), device="cuda")
    memory = DeviceMemory(device)
    with subprocess.Popen(
        [sys.executable, "-c", _EXPORTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        plain, turned = (Location.decode(bytes.fromhex(other.stdout.readline().strip())) for _ in range(2))
        expected = torch.arange(2**20, device=device, dtype=torch.float32).view(1024, 1024)
        assert torch.equal(memory.read(plain, spec, places), expected.view(-1)[places.flat])
        assert torch.equal(memory.read(turned, spec, places), expected.t().reshape(-1)[places.flat])
        assert not memory.was_open
        for address, strides in ((2**62, plain.strides), (0, (2**40, 1)), (1, plain.strides), (2**30, plain.strides)):
            with pytest.raises(Unreadable):
                memory.read(Location(LocationKind.PRIVATE, address, strides, plain.handle), spec, places)
        memory.end_call()
        memory.read(plain, spec, places)
        assert memory.was_open
        for _ in range(6):
            memory.end_call()
        assert not memory._mappings
        memory.read(plain, spec, places)
        other.stdin.close()
        other.wait()
    memory.close()  # of a process that has ended
    torch.cuda.synchronize()
    assert torch.zeros(4, device=device).sum().item() == 0
