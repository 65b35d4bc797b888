"""One diagnosis: a tool is started over a candidate, in a sandbox, and its output is read. Torch-free."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from evaluator.builder.resources import KernelResources, spill_notes
from evaluator.diagnosis import counters, sanitizer
from evaluator.diagnosis.source_map import SourceMap
from evaluator.errors import EvaluationCancelled, ToolchainMissing
from evaluator.interpreter import python_command
from evaluator.progress import never_cancelled
from evaluator.sandbox.capture import Capture
from evaluator.sandbox.confinement import Confinement
from evaluator.task import EvaluationTask
from kerneljudge.terms.findings import Diagnosis, Tool

__all__ = ["TIMEOUT_S", "Workplace", "diagnose", "tool_path"]

TIMEOUT_S: Final = 600.0
"""A tool makes a kernel slower by a factor of ten to a hundred."""

_RESULT_BYTES: Final = 4 * 2**20
_PRINTED_BYTES: Final = 64 * 1024
_MAX_ERROR: Final = 4000
_DRAIN_S: Final = 5.0
_POLL_S: Final = 0.2
_STAGES: Final = ("starting", "importing", "constructing", "forward", "backward", "done")
_SANITIZER_OPTIONS: Final = ("--print-limit", "200", "--show-backtrace", "device", "--log-file", "{report}")
_COUNTER_OPTIONS: Final = (
    "--csv",
    "--page",
    "raw",
    "--print-units",
    "base",
    "--profile-from-start",
    "off",
    # The device's clocks are as they are in an evaluation, and are left alone.
    "--clock-control",
    "none",
    "--launch-count",
    "64",
    "--log-file",
    "{report}",
)
_OF_TOOLS: Final = ("/usr/local/cuda/bin", "/opt/nvidia/nsight-compute", "/opt/nvidia/nsight-compute/host")
_NOT_PERMITTED: Final = (
    "hardware counters are not permitted here (ERR_NVGPUCTRPERM): the driver gives them to administrators alone, "
    "unless its module is loaded with NVreg_RestrictProfilingToAdminUsers=0"
)


@dataclass(frozen=True)
class Workplace:
    """The place of a diagnosis: files, variables and resources of its process.

    ``environment`` is that of our own process, ``inner`` the candidate's. ``builds`` returns the candidate's builds, as
    ``builder.report`` does.
    """

    confinement: Confinement
    environment: Mapping[str, str]
    inner: Mapping[str, str]
    scratch: Path
    build_end: socket.socket
    builds: Callable[[], Sequence[Mapping[str, Any]]]


@dataclass(frozen=True)
class _Raw:
    """The output of the process. ``status`` is the tool's; ``None`` where it did not start, or was ended."""

    status: int | None
    report: str
    stage: str
    error: str
    printed: str
    timed_out: bool


def tool_path(tool: Tool) -> str | None:
    """The path of the tool's program, or ``None``."""
    home = os.environ.get("CUDA_HOME") or "/usr/local/cuda"
    return shutil.which(tool.program) or shutil.which(f"{home}/bin/{tool.program}")


def diagnose(
    task: EvaluationTask,
    tool: Tool,
    workplace: Workplace,
    *,
    program: str | None = None,
    timeout_s: float = TIMEOUT_S,
    cancelled: Callable[[], bool] = never_cancelled,
) -> Diagnosis:
    """Run the candidate once below ``tool``. ``program`` replaces the program that is found on this machine.

    Raises ``ToolchainMissing`` where there is none, and ``EvaluationCancelled``.
    """
    program = program or tool_path(tool)
    if program is None:
        raise ToolchainMissing(f"there is no {tool.program} on this machine; it is part of NVIDIA's CUDA toolkit")
    begin, config = time.monotonic(), task.config
    device = config.device_kind
    payload = {
        "confinement": _with_tools(workplace.confinement, program).to_json(),
        "files": {"model.py": task.problem.sized_source(config.size), "candidate.py": task.candidate.source},
        "environment": {**workplace.inner, **_environment_of(tool)},
        "tool": [program, *_options(tool)],
        "spec": {"device": device, "precision": config.precision, "seed": secrets.randbits(63)},
    }
    raw = _run(payload, workplace, timeout_s, cancelled)
    kernels = KernelResources.parse_all(
        [kernel for build in workplace.builds() for kernel in build.get("resources", ())]
    )
    source = SourceMap(task.candidate.source)
    faults = () if tool is Tool.COUNTERS else tuple(map(source.locate, sanitizer.parse_faults(raw.report)))
    counted = counters.parse_counters(raw.report) if tool is Tool.COUNTERS else ()
    return Diagnosis(
        tool=tool,
        problem=task.problem.id,
        device=device,
        size=config.size,
        precision=config.precision,
        stage=raw.stage,
        seconds=time.monotonic() - begin,
        faults=faults,
        counters=counted,
        kernels=tuple(asdict(kernel) for kernel in kernels),
        error=raw.error,
        obstacle="" if faults or counted else _obstacle(tool, raw, timeout_s),
        printed=raw.printed,
        notes=spill_notes(kernels),
    )


def _options(tool: Tool) -> list[str]:
    if tool is Tool.COUNTERS:
        return [*_COUNTER_OPTIONS, "--metrics", ",".join(counters.METRICS.values())]
    # Space between allocations: the first element beyond one is not the first of the next.
    padding = ["--padding", "64"] if tool is Tool.MEMCHECK else []
    return ["--tool", str(tool), *padding, *_SANITIZER_OPTIONS]


def _environment_of(tool: Tool) -> dict[str, str]:
    # Without the allocator's cache each tensor is an allocation of its own, so that errors beyond its end show.
    return {} if tool is Tool.COUNTERS else {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}


def _with_tools(confinement: Confinement, program: str) -> Confinement:
    """Add the tool's own files to the visible ones; on some machines they are in ``/opt``."""
    root = confinement.root
    wanted: Iterable[str] = (*_OF_TOOLS, str(Path(program).parent), str(Path(program).resolve().parent))
    visible = list(root.visible)
    for name in wanted:
        path = Path(name)
        if len(path.parts) > 2 and path.exists() and not any(path.is_relative_to(known) for known in visible):
            visible.append(name)
    return replace(confinement, root=replace(root, visible=tuple(visible)))


def _run(payload: Mapping[str, Any], workplace: Workplace, timeout_s: float, cancelled: Callable[[], bool]) -> _Raw:
    directory = Path(tempfile.mkdtemp(prefix="diagnosis-", dir=workplace.scratch))
    printed, result = Capture(_PRINTED_BYTES), Capture(_RESULT_BYTES)
    try:
        process = subprocess.Popen(
            python_command("-m", "evaluator.diagnosis.confined", str(workplace.build_end.fileno())),
            cwd=directory,
            env=dict(workplace.environment),
            stdin=subprocess.PIPE,
            stdout=printed.descriptor,
            stderr=result.descriptor,
            pass_fds=[workplace.build_end.fileno()],
            start_new_session=True,
        )
        printed.close_writer()
        result.close_writer()
        try:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(json.dumps(payload).encode())
                process.stdin.close()
            deadline, status = time.monotonic() + timeout_s, None
            while status is None and time.monotonic() < deadline:
                if cancelled():
                    raise EvaluationCancelled
                with contextlib.suppress(subprocess.TimeoutExpired):
                    status = process.wait(_POLL_S)
        finally:
            # It is the parent of its namespace's first process, which ends with it, and everything in there.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        found = _last_object(result.text(_DRAIN_S))
        outcome = _object(found.get("outcome", ""))
        stage = outcome.get("stage")
        return _Raw(
            status=found.get("status") if type(found.get("status")) is int else None,
            report=str(found.get("report", "")),
            stage=stage if stage in _STAGES else _STAGES[0],
            error=str(outcome.get("error", ""))[:_MAX_ERROR],
            printed=printed.text(_DRAIN_S),
            timed_out=status is None,
        )
    finally:
        printed.close_writer()
        result.close_writer()
        shutil.rmtree(directory, ignore_errors=True)


def _obstacle(tool: Tool, raw: _Raw, timeout_s: float) -> str:
    """Return the reason why the tool reported nothing; empty where it did report."""
    said = f"{raw.report}\n{raw.printed}"
    if raw.timed_out:
        return f"{tool.program} was ended after {timeout_s:.0f} s ({raw.stage})"
    if tool is Tool.COUNTERS and counters.not_permitted(said):
        return _NOT_PERMITTED
    trouble = counters.tool_error(said) if tool is Tool.COUNTERS else sanitizer.tool_error(said)
    if raw.stage == _STAGES[0]:
        last = said.strip().splitlines()[-1:] or ["it says nothing"]
        return f"{tool.program} did not come to start the candidate: {trouble or last[0][:300]}"
    if trouble:
        return f"{tool.program}: {trouble}"
    if tool is Tool.COUNTERS and raw.stage == "done":
        return "ncu has measured no kernel: the candidate launched none, or its table could not be read"
    return ""


def _last_object(text: str) -> dict[str, Any]:
    lines = text.strip().splitlines()
    return _object(lines[-1]) if lines else {}


def _object(text: object) -> dict[str, Any]:
    with contextlib.suppress(ValueError, RecursionError):
        data = json.loads(text) if isinstance(text, str) else None
        if isinstance(data, dict):
            return data
    return {}
