"""What a kernel takes: read from the assembler's words, kept with what was built, believed by nobody."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.builder.builder import Builder
from evaluator.builder.cache import Artifact, ArtifactCache
from evaluator.builder.request import BuildRequest
from evaluator.builder.resources import ASKING, KernelResources, ResourceReader, asks_itself, short_name, spill_notes
from evaluator.devices.discovery import cuda_architectures, nvcc_path
from evaluator.sandbox.confinement import Confinement
from evaluator.sandbox.filesystem import Root, visible_paths

# As nvcc 13.0 prints it.
_PRINTED = """\
[2/3] /usr/local/cuda/bin/nvcc -c cuda.cu -o cuda.cuda.o
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z5spillILi128EEvPfi' for 'sm_90'
ptxas info    : Function properties for _Z5spillILi128EEvPfi
    240 bytes stack frame, 368 bytes spill stores, 372 bytes spill loads
ptxas info    : Used 64 registers, used 0 barriers, 240 bytes cumulative stack size
ptxas info    : Compile time = 102.633 ms
ptxas info    : Compiling entry function '_Z3addPfPKfi' for 'sm_90'
ptxas info    : Function properties for _Z6helperf
    16 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Function properties for _Z3addPfPKfi
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 1 barriers, 1024 bytes smem
ptxas info    : Compile time = 3.679 ms
ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized
cuda.cu(3): warning #177-D: variable "x" was declared but never referenced
"""
_SPILLING = KernelResources("spill<128>", "sm_90", 64, 0, 240, 368, 372)


def test_every_kernel_is_read_and_the_rest_is_left_in_the_log() -> None:
    reader = ResourceReader()
    left = [line for line in _PRINTED.splitlines() if not reader.take(line)]
    assert reader.kernels == (
        KernelResources("_Z5spillILi128EEvPfi", "sm_90", 64, 0, 240, 368, 372),
        KernelResources("_Z3addPfPKfi", "sm_90", 10, 1024, 0, 0, 0),
    )
    assert [line.split()[0] for line in left] == ["[2/3]", "ptxas", "cuda.cu(3):"]


@given(st.lists(st.sampled_from(_PRINTED.splitlines()) | st.text()))
def test_lines_in_any_order_do_no_harm(lines: list[str]) -> None:
    reader = ResourceReader()
    for line in lines:
        reader.take(line)
    assert len(reader.kernels) <= 2


def test_there_is_a_limit_to_how_many_kernels_are_kept() -> None:
    reader = ResourceReader()
    for number in range(1000):
        reader.take(f"ptxas info    : Compiling entry function '_Z{number}k' for 'sm_90'")
        reader.take("ptxas info    : Used 10 registers")
    assert len(reader.kernels) == 64


@pytest.mark.parametrize(
    "item",
    [
        None,
        7,
        {"name": "k"},
        {"name": "k", "arch": "sm 90", "registers": 3},
        {"name": "k", "arch": "sm_90", "registers": -1},
        {"name": "k", "arch": "sm_90", "registers": True},
        {"name": "k", "arch": "sm_90", "registers": 2**60},
        {"name": "k", "arch": "sm_90", "registers": "3"},
        {"name": 3, "arch": "sm_90", "registers": 3},
    ],
)
def test_what_is_malformed_is_left_out(item: object) -> None:
    good = {"name": "n" * 1000, "arch": "sm_90", "registers": 3, "other": "x"}
    assert KernelResources.parse_all([item, good]) == (KernelResources("n" * 200, "sm_90", 3),)
    assert KernelResources.parse_all(item) == ()


@pytest.mark.parametrize(
    ("flags", "asks"),
    [
        (["-O3", "--use_fast_math"], False),
        (["-Xptxas=-v"], True),
        (["-Xptxas", "-v"], True),
        (["--ptxas-options=-O3,-v"], True),
        (["--resource-usage"], True),
        (["-std=c++17", "-gencode=arch=compute_90,code=sm_90"], False),
    ],
)
def test_who_asks_for_it_gets_it_in_the_log(flags: list[str], asks: bool) -> None:
    assert asks_itself(flags) is asks


@pytest.mark.parametrize(
    ("demangled", "short"),
    [
        ("add(float*, float const*, int)", "add"),
        ("void spill<128>(float*, int)", "spill<128>"),
        ("void f<(bool)1, 4>(float*)", "f<(bool)1, 4>"),
        ("(anonymous namespace)::relu(float*)", "relu"),
        ("_Z3", "_Z3"),
    ],
)
def test_a_name_is_short(demangled: str, short: str) -> None:
    assert short_name(demangled) == short


def test_a_kernel_that_spills_is_named_in_a_note() -> None:
    notes = spill_notes([KernelResources("add", "sm_90", 10, 1024), _SPILLING])
    assert len(notes) == 1
    assert "kernel spill<128> (sm_90)" in notes[0]
    assert "368 bytes of spill stores" in notes[0]
    assert len(spill_notes([_SPILLING] * 50)) == 5
    assert spill_notes([]) == ()


def test_it_is_kept_with_what_was_built(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path / "cache")
    stored = cache.store(Artifact("ab" * 32, "x", None, ("spill",), 1.5, "log", (_SPILLING,)), None)
    assert cache.find("ab" * 32) == stored
    assert stored.resources == (_SPILLING,)


def test_an_entry_of_before_it_was_kept_is_as_good_as_not_there(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path / "cache")
    cache.store(Artifact("ab" * 32, "x", None, (), 1.5, "log"), None)
    manifest = tmp_path / "cache" / "ab" / ("ab" * 32) / "artifact.json"
    manifest.write_text(manifest.read_text().replace('"resources"', '"other"'))
    assert cache.find("ab" * 32) is None


_KERNEL = """
#include <cuda_runtime.h>
template <int N> __global__ void __launch_bounds__(1024) heavy(float* a, int n) {
  float r[N];
  for (int i = 0; i < N; i++) r[i] = a[i * n];
  for (int k = 0; k < n; k++) for (int i = 0; i < N; i++) r[i] = r[i] * r[(i * 7 + 3) % N] + k;
  for (int i = 0; i < N; i++) a[i * n + 1] = r[i];
}
template __global__ void heavy<128>(float*, int);
__global__ void light(float* a) { __shared__ float s[64]; s[threadIdx.x] = a[0]; __syncthreads(); a[1] = s[3]; }
"""

needs_nvcc = pytest.mark.skipif(nvcc_path() is None, reason="no nvcc on this machine")


@needs_nvcc
def test_a_build_tells_it_and_so_does_the_cached_one(tmp_path: Path) -> None:
    environment = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(sys.path),
        "TORCH_CUDA_ARCH_LIST": cuda_architectures(),
    }
    nvcc = nvcc_path()
    assert nvcc is not None
    root = Root(visible_paths([str(Path(nvcc).resolve().parent.parent)]), (), (), 2**32)
    builder = Builder(
        ArtifactCache(tmp_path / "cache"),
        {"nvcc": "yes"},
        environment,
        tmp_path,
        Confinement(root, 2**34, 1024, 2**32),
        slots=1,
    )
    # Without torch's headers it takes seconds and not minutes.
    request = BuildRequest.parse(
        {"name": "x", "files": {"x.cu": _KERNEL, "m.cpp": "int y;"}, "with_cuda": True, "is_python_module": False}
    )
    for expected_cached in (False, True):
        result, cached = builder.build(request, 250, threading.Event())
        assert isinstance(result, Artifact), result
        assert cached is expected_cached
        found = {kernel.name: kernel for kernel in result.resources}
        assert set(found) == {"heavy<128>", "light"}
        assert found["heavy<128>"].spills
        assert found["heavy<128>"].registers == 64
        assert found["light"].shared_bytes == 256
        assert not found["light"].spills
        assert "nvcc" in result.log
        assert "registers" not in result.log


@needs_nvcc
def test_asking_changes_no_instruction(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(_KERNEL)
    nvcc = nvcc_path()
    assert nvcc is not None
    texts = []
    for environment in ({}, ASKING):
        command = [nvcc, "-arch=sm_90", "-cubin", "k.cu", "-o", "k.cubin"]
        subprocess.run(command, cwd=tmp_path, env={**os.environ, **environment}, check=True, capture_output=True)
        texts.append(_code_sections((tmp_path / "k.cubin").read_bytes()))
    assert len(texts[0]) == 2
    assert texts[0] == texts[1]


def _code_sections(elf: bytes) -> dict[str, bytes]:
    """The sections ``.text.*`` of a 64-bit ELF file."""

    def number(place: int, size: int) -> int:
        return int.from_bytes(elf[place : place + size], "little")

    headers, size, count, names = number(0x28, 8), number(0x3A, 2), number(0x3C, 2), number(0x3E, 2)
    texts = number(headers + names * size + 0x18, 8)
    found = {}
    for header in range(headers, headers + count * size, size):
        start = texts + number(header, 4)
        name = elf[start : elf.index(b"\0", start)].decode()
        if name.startswith(".text."):
            offset, length = number(header + 0x18, 8), number(header + 0x20, 8)
            found[name] = elf[offset : offset + length]
    return found
