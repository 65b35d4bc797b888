"""The trusted processes of an engine: judge, builder, and the process that runners are forked from. Torch-free.

They are started together, and each is replaced after it died.
"""

from __future__ import annotations

import resource
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from evaluator.artifact_store import StoreAddress
from evaluator.builder.client import BuilderProcess
from evaluator.builder.recipes.ladder import find_prepared
from evaluator.config import Limits
from evaluator.devices.discovery import compiler_versions, cuda_architectures, default_build_slots
from evaluator.errors import InfrastructureFault, SandboxIncomplete
from evaluator.judge.client import JudgeProcess
from evaluator.processes.environment import ProcessEnvironment
from evaluator.sandbox.client import ForkServer
from evaluator.sandbox.layers import MEANING, OPTIONAL, Layer, SandboxLayer

__all__ = ["TrustedProcesses"]

_DESCRIPTORS: Final = 2**16


class TrustedProcesses:
    """Starts and replaces the trusted processes of an engine for ``device``; ``None``: without a judge.

    ``judge``, ``builder`` and ``forkserver`` are ``None`` before ``start`` and after ``close``. The other parameters
    are those of ``Engine``.
    """

    def __init__(
        self,
        device: str | None,
        *,
        cache_dir: Path,
        cache_bytes: int,
        build_slots: int | None,
        require_sandbox: bool,
        artifact_store: StoreAddress | None,
    ) -> None:
        self.judge: JudgeProcess | None = None
        self.builder: BuilderProcess | None = None
        self.forkserver: ForkServer | None = None
        self.process_environment: ProcessEnvironment | None = None
        """The share of this machine that all processes get; ``None`` before ``start`` and after ``close``."""
        self.description: dict[str, Any] = {}
        """Device, driver and versions, as context of a result. Empty before ``start``."""
        self.layers: tuple[SandboxLayer, ...] = ()
        """Every layer of the sandbox, as ``start`` found it. Empty before."""
        self._device = device
        self._cache_dir = cache_dir
        self._cache_bytes = cache_bytes
        self._build_slots = build_slots or default_build_slots()
        self._require_sandbox = require_sandbox
        self._artifact_store = artifact_store
        self.starting = threading.RLock()
        """Held while processes are replaced: with it, none of them is half started."""

    @property
    def process_ids(self) -> dict[str, int]:
        """The numbers of those that are alive, by role."""
        roles = {"judge": self.judge, "builder": self.builder, "forkserver": self.forkserver}
        return {
            role: process.pid
            for role, process in roles.items()
            if process is not None and process.alive and process.pid is not None
        }

    def start(self, scratch_dir: Path, before_judge: Callable[[], None]) -> None:
        """Start all of them, with folders below ``scratch_dir``. Idempotent. Raises as ``ensure_alive`` does."""
        _raise_descriptor_limit()
        if self.process_environment is None:
            self.process_environment = ProcessEnvironment(
                self._device, cache_dir=self._cache_dir, scratch_dir=scratch_dir
            )
        self.ensure_alive(before_judge=before_judge)

    def ensure_alive(self, *, before_judge: Callable[[], None] | None) -> None:
        """Start the processes that are not running: at first, and after one of ours died.

        ``before_judge`` is called before a judge is started. With ``None`` the judge is left as it is: a build may run
        beside an evaluation, which the judge belongs to. Raises ``DeviceUnavailable``, ``InfrastructureFault`` and
        ``SandboxIncomplete``.
        """
        with self.starting:
            environment = self.process_environment
            if environment is None:
                raise InfrastructureFault("the engine is not started")
            new_judge: JudgeProcess | None = None
            if before_judge is not None and self._device is not None and (self.judge is None or not self.judge.alive):
                before_judge()
                new_judge = self._launch_judge(environment)
            if self.forkserver is None or not self.forkserver.alive:
                if self.forkserver is not None:
                    self.forkserver.close()
                self.forkserver = ForkServer(environment.torch_environment)
                self.forkserver.processors = environment.other_processors
                self.forkserver.start()
                self._try_sandbox(self.forkserver, environment)
            if self.builder is None or not self.builder.alive:
                if self.builder is not None:
                    self.builder.close()
                self.builder = self._start_builder(self.forkserver, environment)
            if new_judge is not None:
                new_judge.await_ready()
            described = self.judge.description if self.judge is not None else dict(self.forkserver.versions)
            self.description = {
                **described,
                "device": "none" if self._device is None else self._device.partition(":")[0],
                **compiler_versions(),
            }

    def close(self) -> None:
        """End all of them. Idempotent."""
        for process in (self.forkserver, self.judge, self.builder):
            if process is not None:
                process.close()
        self.forkserver = self.judge = self.builder = None
        self.process_environment = None

    def start_diagnosis_builder(self) -> BuilderProcess:
        """Return a builder besides the engine's own; ``close`` is the caller's. Raises ``InfrastructureFault``.

        Its CUDA code has the lines of its source, because the tools of a diagnosis name them.
        """
        forkserver, environment = self.forkserver, self.process_environment
        if forkserver is None or environment is None:
            raise InfrastructureFault("the engine was closed")
        return self._start_builder(forkserver, environment, line_information=True)

    def _launch_judge(self, environment: ProcessEnvironment) -> JudgeProcess:
        if self.judge is not None:
            self.judge.close()
        kind, folder = "cpu" if self._device == "cpu" else "cuda", self._cache_dir / "ceilings"
        self.judge = JudgeProcess(kind, environment.torch_environment, folder)
        self.judge.processors = environment.judge_processors
        self.judge.launch()
        return self.judge

    def _try_sandbox(self, forkserver: ForkServer, environment: ProcessEnvironment) -> None:
        confinement = environment.runner_confinement(Limits())
        refused = forkserver.probe_layers(
            {"confinement": confinement.to_json(), "scratch": str(environment.scratch_dir)}
        )
        self.layers = tuple(
            SandboxLayer(str(layer), layer not in refused, layer in OPTIONAL, MEANING[layer]) for layer in Layer
        )
        needed = [layer for layer in self.layers if not layer.there and not layer.optional]
        if self._require_sandbox and needed:
            forkserver.close()  # or the next evaluation would take it as it is
            raise SandboxIncomplete(
                "a complete sandbox is required, and the kernel refuses: "
                + "; ".join(f"{layer.name} ({layer.meaning})" for layer in needed)
            )

    def _start_builder(
        self, forkserver: ForkServer, environment: ProcessEnvironment, *, line_information: bool = False
    ) -> BuilderProcess:
        architectures = cuda_architectures()
        builder = BuilderProcess(
            cache_dir=self._cache_dir,
            cache_bytes=self._cache_bytes,
            scratch_dir=environment.scratch_dir,
            toolchain={
                **forkserver.versions,
                "python": sys.version,
                **compiler_versions(),
                "cuda_architectures": architectures,
                **({"line_information": True} if line_information else {}),
            },
            environment=environment.environment | {"TORCH_CUDA_ARCH_LIST": architectures},
            confinement=environment.compiler_confinement(),
            slots=self._build_slots,
            prepared=find_prepared(environment.environment),
            artifact_store=self._artifact_store,
        )
        builder.processors = environment.other_processors
        builder.start()
        return builder


def _raise_descriptor_limit() -> None:
    """Raise the limit of descriptors of this process, and of those that it starts, to the allowed maximum.

    Linux counts the descriptors on their way through sockets for all processes of a user together. A process with a
    lower limit than that count cannot send one. So candidates, who have a limit of their own, could keep the judge from
    reaching its runners.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
