"""Diagnosis: what tools print is read, mapped to the candidate's lines, and their program runs in the sandbox.

The texts below are written by hand after NVIDIA's documentation of the formats; none is a recording.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch.utils.cpp_extension as torch_extension
from hypothesis import given
from hypothesis import strategies as st

from evaluator.candidates.candidate import Candidate, parse_candidate
from evaluator.config import EvalConfig
from evaluator.diagnosis import counters, sanitizer
from evaluator.diagnosis.source_map import SourceMap
from evaluator.engine import Engine
from evaluator.errors import EvaluationCancelled
from evaluator.problems.problem import Problem
from kerneljudge.terms.findings import Diagnosis, Fault, KernelCounters, Tool
from tests.sanitizers import make_fake_tool

_MEMCHECK = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at relu_kernel(const float *, float *, long)+0x1a0 in /candidate/cuda.cu:8
=========     by thread (192,0,0) in block (3906,0,0)
=========     Access at 0x7f31d5a3d300 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f31d4200000 of size 4,000,000 bytes
=========     Saved host backtrace up to driver entry point at kernel launch time
=========     Host Frame: at 0x1234 in libcuda.so
=========
========= Invalid __global__ write of size 4 bytes
=========     at relu_kernel(const float *, float *, long)+0x1a0 in /candidate/cuda.cu:8
=========     by thread (193,0,0) in block (3906,0,0)
=========     Access at 0x7f31d5a3d304 is out of bounds
=========
========= Invalid __shared__ read of size 16 bytes
=========     at void other<(int)4>(float *)+0x60
=========     by thread (0,1,2) in block (3,0,0)
=========     Address 0x404 is misaligned
=========
========= Program hit cudaErrorIllegalAddress (error 700) due to "an illegal memory access was encountered" on CUDA \
API call to cudaDeviceSynchronize.
=========     Saved host backtrace up to driver entry point at error
=========     Host Frame: at somewhere+0x12
=========
========= ERROR SUMMARY: 4 errors
"""
_OLDER = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 4 bytes
=========     at 0x70 in /build/cuda.cu:5:bad(float*)
=========     by thread (1,0,0) in block (0,0,0)
=========     Address 0x7fb65c800100 is out of bounds
=========
========= ERROR SUMMARY: 1 error
"""
_RACECHECK = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at sum(float *)+0x90 in /candidate/cuda.cu:10
=========     and Read access at sum(float *)+0xd0 in /candidate/cuda.cu:12 [508 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
_INITCHECK = """\
========= COMPUTE-SANITIZER
========= Uninitialized __global__ memory read of size 4 bytes
=========     at k(float *)+0x60 in /candidate/cuda.cu:6
=========     by thread (0,0,0) in block (0,0,0)
=========
========= ERROR SUMMARY: 1 error
"""
_SYNCCHECK = """\
========= COMPUTE-SANITIZER
========= Barrier error detected. Divergent thread(s) in block.
=========     at k(float *)+0x100 in /candidate/cuda.cu:7
=========     by thread (31,0,0) in block (0,0,0)
=========
========= ERROR SUMMARY: 1 error
"""
_NCU = """\
==PROF== Connected to process 12 (/usr/bin/python3)
==PROF== Profiling "relu_kernel" - 0: 0%....50%....100% - 1 pass
"ID","Process ID","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC",\
"dram__bytes_read.sum","dram__bytes_write.sum","dram__throughput.avg.pct_of_peak_sustained_elapsed",\
"gpu__time_duration.sum","launch__registers_per_thread","launch__shared_mem_per_block_dynamic",\
"launch__shared_mem_per_block_static","sm__throughput.avg.pct_of_peak_sustained_elapsed",\
"sm__warps_active.avg.pct_of_peak_sustained_active"
"","","","","","","","","","byte","byte","%","ns","register/thread","byte/block","byte/block","%","%"
"0","12","void relu_kernel<float>(const float *, float *, long)","1","7","(256, 1, 1)","(4096, 1, 1)","0","9.0",\
"4,000,000","2,000,000","75.5","3,000","32","0","1,024","12.25","88"
"1","12","other(float *)","1","7","(1, 1, 1)","(1, 1, 1)","0","9.0","nan","","n/a","5","16","0","0","0","1"
"""
_NOT_PERMITTED = """\
==PROF== Connected to process 12
==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the target \
device 0. For instructions on enabling permissions and to get more information see https://developer.nvidia.com/…
"""


def test_memcheck_tells_kernel_line_access_thread_and_block() -> None:
    faults = sanitizer.parse_faults(_MEMCHECK)
    assert faults[0] == Fault(
        what="Invalid __global__ write of size 4 bytes",
        kernel="relu_kernel",
        file="cuda.cu",
        line=8,
        thread=(192, 0, 0),
        block=(3906, 0, 0),
        details=(
            "Access at 0x7f31d5a3d300 is out of bounds",
            "and is 1 bytes after the nearest allocation at 0x7f31d4200000 of size 4,000,000 bytes",
        ),
        count=2,
    )
    assert (faults[1].kernel, faults[1].line, faults[1].thread) == ("other<(int)4>", None, (0, 1, 2))
    assert faults[1].details == ("Address 0x404 is misaligned",)
    assert faults[2].what.startswith("Program hit cudaErrorIllegalAddress")
    assert faults[2].kernel is None
    assert len(faults) == 3


@pytest.mark.parametrize(
    ("text", "what", "kernel", "line"),
    [
        (_OLDER, "Invalid __global__ read of size 4 bytes", "bad", 5),
        (_RACECHECK, "Race reported between Write access", "sum", 10),
        (_INITCHECK, "Uninitialized __global__ memory read of size 4 bytes", "k", 6),
        (_SYNCCHECK, "Barrier error detected. Divergent thread(s) in block.", "k", 7),
    ],
)
def test_every_tool_is_read(text: str, what: str, kernel: str, line: int) -> None:
    (fault,) = sanitizer.parse_faults(text)
    assert (fault.what, fault.kernel, fault.file, fault.line) == (what, kernel, "cuda.cu", line)


def test_nothing_wrong_is_no_fault() -> None:
    assert sanitizer.parse_faults("========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n") == ()


def test_trouble_of_the_tool_is_no_fault_of_the_candidate() -> None:
    text = "========= COMPUTE-SANITIZER\n========= Error: Target application terminated before first instrumented API\n"
    assert sanitizer.parse_faults(text) == ()
    assert "terminated before" in sanitizer.tool_error(text)


@given(st.lists(st.sampled_from((_MEMCHECK + _RACECHECK + _OLDER).splitlines()) | st.text()))
def test_whatever_is_in_the_report_is_cut_to_size(lines: list[str]) -> None:
    faults = sanitizer.parse_faults("\n".join(lines))
    sanitizer.tool_error("\n".join(lines))
    assert len(faults) <= 16
    for fault in faults:
        assert len(json.dumps(fault.describe())) < 8000


def test_counters_are_read_in_one_unit_each() -> None:
    first, second = counters.parse_counters(_NCU)
    assert first == KernelCounters(
        kernel="relu_kernel<float>",
        grid="(4096, 1, 1)",
        block="(256, 1, 1)",
        duration_us=3.0,
        read_bytes=4e6,
        written_bytes=2e6,
        memory_share=0.755,
        compute_share=0.1225,
        occupancy=0.88,
        registers=32,
        static_shared_bytes=1024,
        dynamic_shared_bytes=0,
    )
    assert first.bandwidth_gb_s == pytest.approx(2000)
    assert (second.read_bytes, second.memory_share, second.bandwidth_gb_s) == (None, None, None)


@given(st.text() | st.lists(st.sampled_from(_NCU.splitlines())).map("\n".join))
def test_a_table_that_is_none_has_no_launches(text: str) -> None:
    for launch in counters.parse_counters(text):
        json.dumps(launch.to_dict(), allow_nan=False)


_SOURCE = '''\
import torch
from torch.utils.cpp_extension import load_inline

cuda_source = """
#include <torch/extension.h>
__global__ void bad(float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  x[i] = 0;
}
"""
second = """__global__ void other(float* x) {
  x[0] = 1; }"""

extension = load_inline("x", cpp_sources="", cuda_sources=[cuda_source, second], functions=["f"])
'''


def _generated(source: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> list[str]:
    """The lines of the file that torch itself makes of the CUDA sources."""
    monkeypatch.setattr(torch_extension, "_jit_compile", lambda *_args, **_options: None)
    monkeypatch.setattr(torch_extension, "_get_build_directory", lambda *_args, **_options: str(folder))
    exec(compile(source, "candidate.py", "exec"), {})  # noqa: S102 - it is ours
    return (folder / "cuda.cu").read_text().splitlines()


def test_each_line_of_a_kernel_is_one_of_the_candidates(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    generated = _generated(_SOURCE, monkeypatch, tmp_path)
    written = _SOURCE.splitlines()
    for kernel, code in (("bad", "x[i] = 0;"), ("other", "x[0] = 1; }")):
        line = 1 + next(number for number, text in enumerate(generated) if code in text)
        located = SourceMap(_SOURCE).locate(Fault("x", kernel, "cuda.cu", line))
        assert located.candidate_line is not None
        assert code in written[located.candidate_line - 1]
        assert code in located.code


@pytest.mark.parametrize(
    "source",
    [
        "",
        "this is no Python (",
        _SOURCE.replace("  x[i] = 0;", "#line 3\n  x[i] = 0;"),
        _SOURCE.replace('second = """', 'second = f"""{1}'),
        _SOURCE.replace("[cuda_source, second]", "sources()"),
        _SOURCE.replace("  x[i] = 0;", "\\n x[i] = 0;"),
    ],
)
def test_a_line_that_is_not_certain_is_not_named(source: str) -> None:
    fault = Fault("x", "bad", "cuda.cu", 8)
    located = SourceMap(source).locate(fault)
    assert located.candidate_line is None or located.code == "x[i] = 0;"
    assert SourceMap(_SOURCE).locate(Fault("x", "bad", "Half.h", 8)).candidate_line is None
    assert SourceMap(_SOURCE).locate(Fault("x", "bad", "cuda.cu", 99)).candidate_line is None
    assert SourceMap(_SOURCE).locate(Fault("x", "other", "cuda.cu", 8)).candidate_line is None


_CONFIG = EvalConfig(device="cpu", size="smoke")
_HONEST = (
    "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return torch.relu(x)\n"
)


@pytest.fixture
def fake_tool(tmp_path: Path) -> Any:
    """Makes a program that says what it is told to and starts the candidate; returns its path."""

    def make(report: str) -> str:
        return make_fake_tool(tmp_path / "tool", report)

    return make


def _diagnosed(engine: Engine, problem: Problem, source: str, program: str, tool: Tool = Tool.MEMCHECK) -> Diagnosis:
    candidate = parse_candidate(code=source)
    assert isinstance(candidate, Candidate)
    found = engine.diagnose(problem, candidate, _CONFIG, tool, program=program)
    assert Diagnosis.from_dict(json.loads(json.dumps(found.to_dict(), allow_nan=False))) == found
    return found


def test_a_candidate_runs_below_the_tool_and_comes_to_its_end(
    cpu_engine: Engine, problems: dict[str, Problem], fake_tool: Any
) -> None:
    program = fake_tool("========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n")
    found = _diagnosed(cpu_engine, problems["relu"], _HONEST, program)
    assert (found.stage, found.error, found.obstacle) == ("done", "", "")
    assert found.clean
    assert "told: --tool memcheck --padding 64" in found.printed


def test_faults_are_found_with_the_candidates_error(
    cpu_engine: Engine, problems: dict[str, Problem], fake_tool: Any
) -> None:
    found = _diagnosed(
        cpu_engine, problems["relu"], _HONEST.replace("torch.relu(x)", "x.no()"), fake_tool(_SYNCCHECK), Tool.SYNCCHECK
    )
    assert found.stage == "forward"
    assert "AttributeError" in found.error
    assert found.faults[0].kernel == "k"
    assert not found.clean
    assert "first: Barrier error detected" in found.summary()


def test_an_extension_is_built_by_the_builder_for_what_runs_below_a_tool(
    cpu_engine: Engine, problems: dict[str, Problem], fake_tool: Any
) -> None:
    source = """
import torch
from torch.utils.cpp_extension import load

with open("x.cpp", "w") as file:
    file.write('#include <Python.h>\\nstatic PyModuleDef d = {PyModuleDef_HEAD_INIT, "diagnosed", 0, -1, 0};\\n'
               'PyMODINIT_FUNC PyInit_diagnosed() { return PyModule_Create(&d); }\\n')
extension = load("diagnosed", ["x.cpp"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
"""
    found = _diagnosed(cpu_engine, problems["relu"], source, fake_tool("========= COMPUTE-SANITIZER\n"))
    assert (found.stage, found.error) == ("done", "")


def test_what_runs_below_a_tool_is_in_the_sandbox(
    cpu_engine: Engine, problems: dict[str, Problem], fake_tool: Any
) -> None:
    source = """
import os, socket
import torch

found = []
found.append(("home", os.path.exists(%r)))
found.append(("pid", os.getppid() < 20))
found.append(("cwd", os.getcwd()))
found.append(("interfaces", [name for _, name in socket.if_nameindex()]))
found.append(("capabilities", [line for line in open("/proc/self/status") if line.startswith("CapEff")][0].split()[1]))
found.append(("seccomp", [line for line in open("/proc/self/status") if line.startswith("Seccomp:")][0].split()[1]))
try:
    import evaluator.engine
    found.append(("engine", True))
except ImportError:
    found.append(("engine", False))
print("found", found)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
""" % str(Path(__file__))  # noqa: UP031 - braces
    found = _diagnosed(cpu_engine, problems["relu"], source, fake_tool("========= COMPUTE-SANITIZER\n"))
    for words in (
        "('home', False)",
        "('pid', True)",
        "('cwd', '/candidate')",
        "('interfaces', ['lo'])",
        "('capabilities', '0000000000000000')",
        "('seccomp', '2')",
        "('engine', False)",
    ):
        assert words in found.printed, found.printed


def test_a_tool_that_does_not_start_the_candidate_is_an_obstacle(
    cpu_engine: Engine, problems: dict[str, Problem], fake_tool: Any
) -> None:
    program = Path(fake_tool(""))
    program.write_text("#!/bin/sh\necho no such option\nexit 1\n")
    found = _diagnosed(cpu_engine, problems["relu"], _HONEST, str(program))
    assert found.obstacle == "compute-sanitizer did not come to start the candidate: no such option"
    assert not found.clean


def test_counters_that_are_not_permitted_are_an_obstacle(
    cpu_engine: Engine, problems: dict[str, Problem], fake_tool: Any
) -> None:
    found = _diagnosed(cpu_engine, problems["relu"], _HONEST, fake_tool(_NOT_PERMITTED), Tool.COUNTERS)
    assert "NVreg_RestrictProfilingToAdminUsers=0" in found.obstacle


def test_counters_come_with_their_launches(cpu_engine: Engine, problems: dict[str, Problem], fake_tool: Any) -> None:
    found = _diagnosed(cpu_engine, problems["relu"], _HONEST, fake_tool(_NCU), Tool.COUNTERS)
    assert [counted.kernel for counted in found.counters] == ["relu_kernel<float>", "other"]
    assert found.summary() == "2 launches of kernels were measured"


def test_a_diagnosis_can_be_cancelled(cpu_engine: Engine, problems: dict[str, Problem], fake_tool: Any) -> None:
    candidate = parse_candidate(code="import time\ntime.sleep(1000)\n\n\n" + _HONEST)
    assert isinstance(candidate, Candidate)
    with pytest.raises(EvaluationCancelled):
        cpu_engine.diagnose(
            problems["relu"], candidate, _CONFIG, Tool.MEMCHECK, program=fake_tool(""), cancelled=lambda: True
        )


_OF_THE_SANITIZER = set(Tool) - {Tool.COUNTERS}


@pytest.mark.parametrize(
    ("device", "tools"), [("cuda:0", _OF_THE_SANITIZER), ("cuda", _OF_THE_SANITIZER), ("cpu", set()), (None, set())]
)
def test_an_engine_knows_the_tools_of_its_machine(
    device: str | None, tools: set[Tool], fake_tool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(Path(fake_tool("")).parent))
    assert Engine(device=device, cache_dir=tmp_path).tools == tools


def test_a_tool_looks_at_the_small_size_and_counts_at_the_whole_one() -> None:
    sizes = ("full", "smoke", "huge")
    assert {tool.usual_size(sizes, "huge") for tool in _OF_THE_SANITIZER} == {"smoke"}
    assert Tool.COUNTERS.usual_size(sizes, "huge") == "huge"
    assert Tool.MEMCHECK.usual_size(("full",), "full") == "full"
