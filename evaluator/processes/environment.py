"""The share of this machine that an engine's processes get: variables, and the view of confined ones. Torch-free."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

from evaluator.builder.recipes import preparation
from evaluator.config import Limits
from evaluator.devices.discovery import cuda_nodes, cuda_uuid, machine_memory_bytes, nvcc_path, processor_shares
from evaluator.interpreter import own_packages, python_environment
from evaluator.sandbox.confinement import Confinement
from evaluator.sandbox.filesystem import Root, visible_paths

__all__ = ["ProcessEnvironment"]

_PASSED_ON: Final = ("PATH", "CUDA_HOME", "CXX", "CC", "LD_LIBRARY_PATH", "LANG", "VIRTUAL_ENV")
_LARGE_PAGES: Final = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
"""Large pages, where the kernel gives them on request (glibc 2.35 requests them). Forking takes two thirds of the time.
A call's allocations on a CPU cost a page fault for each 2 MiB, not for each 4 KiB. Compilers gain nothing.
"""
_MIN_MEMORY_BYTES: Final = 4 * 2**30
_BUILD_DISK_BYTES: Final = 4 * 2**30
_MIN_PROCESSES: Final = 128
_PROCESSES_EACH: Final = 8
"""For each processor: threads of OpenMP, forward and backward, and the processes of ``torch.compile``. No more, because
the end of a fork bomb takes longer, the more processes it has.
"""
_MAX_PROCESSES: Final = 1024


class ProcessEnvironment:
    """The machine as an engine for ``device`` finds it when it starts.

    ``scratch_dir`` is the engine's own folder, and home of its processes. No confined process can see it, ``cache_dir``
    or this project.
    """

    def __init__(self, device: str | None, *, cache_dir: Path, scratch_dir: Path) -> None:
        self.scratch_dir = scratch_dir
        self.environment = _environment(device, scratch_dir)
        """Variables of our own processes: enough to find Python, compilers and one device, and no secret."""
        on_cuda = device is not None and device.startswith("cuda")
        self.torch_environment = self.environment if on_cuda else self.environment | _LARGE_PAGES
        """Variables of those processes that compute, or that computing ones are forked from."""
        shares = None if device is None else processor_shares(device)
        self.judge_processors = None if shares is None else shares.judge
        self.other_processors = None if shares is None else shares.others
        """The processors of all processes but the judge; ``None``: all."""
        self._devices = cuda_nodes(device) if device is not None and on_cuda else ()
        self._visible = visible_paths(_tool_folders())
        self._compiler_visible = visible_paths([*_tool_folders(), str(preparation.root())])
        self._hidden = tuple(map(str, (*own_packages(), cache_dir, scratch_dir)))
        self._memory_bytes = max(_MIN_MEMORY_BYTES, machine_memory_bytes() // 2)
        self._processes = min(_MAX_PROCESSES, _MIN_PROCESSES + _PROCESSES_EACH * (os.cpu_count() or 1))

    def runner_confinement(self, limits: Limits, *, with_device: bool = True) -> Confinement:
        """Return a runner's view of the machine."""
        return Confinement(
            Root(self._visible, self._devices if with_device else (), self._hidden, limits.disk_bytes),
            memory_bytes=limits.memory_bytes or self._memory_bytes,
            processes=limits.processes or self._processes,
            file_bytes=limits.disk_bytes,
        )

    def compiler_confinement(self) -> Confinement:
        """Return a compiler's view: no device, more room for files, and its preparations."""
        confinement = self.runner_confinement(Limits(disk_bytes=_BUILD_DISK_BYTES), with_device=False)
        return replace(confinement, root=replace(confinement.root, visible=self._compiler_visible))

    def runner_environment(self, *, with_device: bool = True) -> dict[str, str]:
        """Return the variables of a runner, but for those that lead into its own folder."""
        own = self.environment
        environment = {
            "PATH": own["PATH"],
            "LANG": "C.UTF-8",
            "CUDA_VISIBLE_DEVICES": own.get("CUDA_VISIBLE_DEVICES", "") if with_device else "",
        }
        return environment | {name: own[name] for name in ("CUDA_HOME", "LD_LIBRARY_PATH") if name in own}


def _environment(device: str | None, home: Path) -> dict[str, str]:
    environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    # The packages of this project are found in the same place as here, installed or not.
    environment = python_environment(environment)
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment.get('PATH', os.defpath)}"
    # Judge and runners share the processors: a thread that spins for work takes time from the measurement.
    environment |= {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}
    # Memory that malloc gives back to the kernel costs a page fault for each 4 KiB when it is requested again. Whether
    # malloc does so differs from process to process: up to eight times the latency of a ReLU that stays in the caches.
    environment |= {"MALLOC_MMAP_THRESHOLD_": str(2**25), "MALLOC_TRIM_THRESHOLD_": str(2**40)}
    # NumPy's BLAS would start a thread per core on import, in a process that is to be forked.
    environment["OPENBLAS_NUM_THREADS"] = "1"
    environment["HOME"] = str(home)
    # Importing torch.utils.cpp_extension checks whether CUDA is available. That check alone, through the runtime, would
    # make CUDA unusable in every process forked afterwards; NVML answers without touching it.
    environment["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    if device is not None and device.startswith("cuda"):
        # By its name and not by a number: a runner gets this device's node alone, and counts from there.
        environment["CUDA_VISIBLE_DEVICES"] = cuda_uuid(device)
    elif device == "cpu":
        environment["CUDA_VISIBLE_DEVICES"] = ""
    return environment


def _tool_folders() -> list[str]:
    """Folders of compilers and CUDA's libraries outside of the usual ones."""
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    return [
        *os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep),
        *([os.environ["CUDA_HOME"]] if "CUDA_HOME" in os.environ else []),
        *(str(Path(tool).parent.parent) for tool in (nvcc_path(), compiler) if tool is not None),
    ]
