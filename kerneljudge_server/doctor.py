"""``kerneljudge doctor``: the requirements of an evaluation on this machine, checked by starting an engine."""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from evaluator.devices.discovery import available_devices, has_cxx_compiler, machine_memory_bytes, nvcc_path
from evaluator.devices.health import Health, device_health
from evaluator.engine import Engine, SandboxLayer
from evaluator.errors import DeviceUnavailable, EvaluatorError
from evaluator.processes.prepare_machine import RecipeState, recipe_states
from evaluator.selftest import SelfTest
from evaluator.selftest import self_test as run_self_test

__all__ = ["Device", "Examination", "Tool", "examine"]

_GIB: Final = 2**30
_SYSCALLS: Final = "syscalls"


@dataclass(frozen=True)
class Tool:
    """A program or library. ``found`` is its version or its path, and ``None`` where it is missing."""

    name: str
    found: str | None
    needed: bool
    advice: str


@dataclass(frozen=True)
class Device:
    """A device for which an engine was started.

    ``error`` is the reason where it did not start. ``health`` has the reasons against measuring on it. ``self_test``
    has the result of the self-test, if that was requested.
    """

    name: str
    environment: Mapping[str, Any]
    error: str | None = None
    health: Health = field(default_factory=Health)
    self_test: SelfTest | None = None

    @property
    def unfit(self) -> bool:
        """Whether nothing should be measured on it now."""
        return not self.health.sound or (self.self_test is not None and not self.self_test.passed)


@dataclass(frozen=True)
class Examination:
    """All findings.

    ``layers`` is empty where no engine came far enough to try them; ``cuda`` is torch's CUDA version.
    """

    devices: tuple[Device, ...]
    layers: tuple[SandboxLayer, ...]
    tools: tuple[Tool, ...]
    recipes: tuple[RecipeState, ...]
    torch: str | None
    cuda: str | None
    processors: int
    memory_bytes: int

    @property
    def sandbox_complete(self) -> bool | None:
        """Whether all required layers are there; ``None`` where they could not be tried."""
        return all(layer.there or layer.optional for layer in self.layers) if self.layers else None

    @property
    def lacks(self) -> tuple[str, ...]:
        """The missing requirements, each with a remedy."""
        return tuple(self._lacks())

    def _lacks(self) -> Iterator[str]:
        missing_tools = [tool for tool in self.tools if tool.needed and tool.found is None]
        for tool in missing_tools:
            yield f"{tool.name} is missing: {tool.advice}"
        without_libseccomp = any(tool.name == "libseccomp" for tool in missing_tools)
        refused = [layer.name for layer in self.layers if not layer.there and not layer.optional]
        if without_libseccomp and _SYSCALLS in refused:
            refused.remove(_SYSCALLS)
        if refused:
            yield (
                f"the kernel refuses these layers of the sandbox: {', '.join(refused)}; "
                'let it grant them (docs/deploying.md, "What the sandbox needs")'
            )
        for device in self.devices:
            if device.error is not None:
                yield f"no engine for {device.name}: {device.error}"
            for reason in (*device.health.reasons, *device.health.events):
                yield f"{device.name} is not fit to be measured on: {reason}"
            if device.self_test is not None and not device.self_test.passed:
                yield f"{device.name} does not pass the self-test: {device.self_test.failure}"

    @property
    def conclusion(self) -> str:
        """A line that says whether candidates can be evaluated here."""
        if any(device.error is not None or device.unfit for device in self.devices):
            return "candidates cannot be evaluated here"
        if not self.sandbox_complete:
            return "candidates can be evaluated here, but not in a complete sandbox"
        if self.lacks:
            return "candidates can be evaluated here in a complete sandbox, but not all of them"
        return "candidates can be evaluated here in a complete sandbox"

    def to_record(self) -> dict[str, Any]:
        """Return the findings as plain data for JSON."""
        return {
            "sandbox_complete": self.sandbox_complete,
            "layers": [asdict(layer) for layer in self.layers],
            "tools": [asdict(tool) for tool in self.tools],
            "recipes": [asdict(recipe) for recipe in self.recipes],
            "devices": [asdict(device) for device in self.devices],
            "torch": self.torch,
            "cuda": self.cuda,
            "processors": self.processors,
            "memory_bytes": self.memory_bytes,
            "lacks": list(self.lacks),
            "conclusion": self.conclusion,
        }

    def to_text(self) -> str:
        """Return the findings as text for people. The last line is the conclusion."""
        lines = ["sandbox"]
        lines += [_line(layer.name, _layer(layer)) for layer in self.layers]
        if not self.layers:
            lines.append(_line("all layers", "could not be tried"))
        lines += ["", "tools"]
        for tool in self.tools:
            missing = f"missing: {tool.advice}" if tool.needed else "missing (only cuda needs it)"
            lines.append(_line(tool.name, missing if tool.found is None else tool.found))
        lines += ["", "recipes for builds"]
        lines += [_line(recipe.name, _recipe(recipe)) for recipe in self.recipes]
        lines += ["", "devices"]
        for device in self.devices:
            lines.append(_line(device.name, device.error or _description(device.environment)))
            lines += [_line("", f"not checked, {what}") for what in device.health.unchecked]
            if device.self_test is not None and device.self_test.passed:
                lines.append(_line("", f"the self-test passed in {device.self_test.seconds:.1f} s"))
        lines += ["", "machine"]
        lines.append(_line("torch", self.torch or "unknown"))
        lines.append(_line("CUDA of torch", self.cuda or "none"))
        lines.append(_line("processors", str(self.processors)))
        lines.append(_line("memory", f"{self.memory_bytes / _GIB:.1f} GiB"))
        lines.append("")
        lines += [f"needed: {lack}" for lack in self.lacks]
        return "\n".join([*lines, self.conclusion])


def examine(devices: Sequence[str] | None, *, self_test: bool = False) -> Examination:
    """Start an engine for each of ``devices``, and examine the machine. It takes seconds and leaves nothing behind.

    ``devices`` of ``None`` are all of this machine. With ``self_test``, candidates with known
    verdicts are judged as well.
    """
    devices = available_devices() if devices is None else devices
    examined: list[Device] = []
    layers: dict[str, SandboxLayer] = {}
    with tempfile.TemporaryDirectory(prefix="kerneljudge-doctor-") as folder:
        for name in devices:
            device, tried = _start(name, Path(folder), self_test=self_test)
            examined.append(device)
            for layer in tried:
                # A layer counts only if it is there for every device, because only that sandbox is certain.
                if layer.name not in layers or not layer.there:
                    layers[layer.name] = layer
    known: dict[str, Any] = {}
    for device in examined:
        known |= {name: value for name, value in device.environment.items() if value}
    return Examination(
        devices=tuple(examined),
        layers=tuple(layers.values()),
        tools=_tools(known, for_cuda=any(name.startswith("cuda") for name in devices)),
        recipes=recipe_states(),
        torch=known.get("torch"),
        cuda=known.get("cuda"),
        processors=len(os.sched_getaffinity(0)),
        memory_bytes=machine_memory_bytes(),
    )


def _start(
    name: str, folder: Path, unavailable: str | None = None, *, self_test: bool = False
) -> tuple[Device, tuple[SandboxLayer, ...]]:
    """Start an engine for the device and return its findings.

    ``unavailable`` is the reason to start it without the device.
    """
    try:
        with Engine(device=name if unavailable is None else None, cache_dir=folder / "cache") as engine:
            if unavailable is not None:
                return Device(name, engine.environment, unavailable), engine.layers
            tested = run_self_test(engine, name) if self_test else None
            return Device(name, engine.environment, None, _health(name, engine), tested), engine.layers
    except DeviceUnavailable as error:
        # The sandbox can be tried without the device.
        return _start(name, folder, str(error))
    except EvaluatorError as error:
        return Device(name, {}, unavailable or str(error)), ()


def _health(name: str, engine: Engine) -> Health:
    looking = device_health(name)
    try:
        return looking.look(engine.process_ids.values())
    finally:
        looking.close()


def _tools(known: Mapping[str, Any], *, for_cuda: bool) -> tuple[Tool, ...]:
    compiler = shutil.which(os.environ.get("CXX", "c++")) if has_cxx_compiler() else None
    nvcc = nvcc_path()
    # The search is that of an engine's processes: beside this Python first.
    ninja = shutil.which("ninja", path=os.pathsep.join([str(Path(sys.executable).parent), *os.get_exec_path()]))
    return (
        Tool("C++ compiler", compiler and str(known.get("compiler", compiler)), True, "install g++ (or set CXX)"),
        Tool(
            "nvcc",
            nvcc and str(known.get("nvcc", nvcc)),
            for_cuda,
            "install the CUDA toolkit of the version that torch was built for (or set CUDA_HOME)",
        ),
        Tool("ninja", ninja, True, "install it with pip install ninja"),
        Tool("libseccomp", _libseccomp(), True, "install libseccomp2 (libseccomp on Fedora)"),
    )


def _libseccomp() -> str | None:
    name = "libseccomp.so.2"
    try:
        ctypes.CDLL(name)
    except OSError:
        return None
    return name


def _layer(layer: SandboxLayer) -> str:
    if layer.there:
        return "there"
    return f"missing{' (optional)' if layer.optional else ''}: {layer.meaning}"


def _recipe(recipe: RecipeState) -> str:
    if recipe.obstacle is not None:
        return f"{recipe.obstacle} (with it, {recipe.gain})"
    return "available" if recipe.covered_by is None else f"not needed, {recipe.covered_by} does all that it does"


def _description(environment: Mapping[str, Any]) -> str:
    driver = [f"driver {environment['driver']}"] if environment.get("driver") else []
    return ", ".join([str(environment["device_name"]), *driver])


def _line(name: str, value: str) -> str:
    return f"  {name:<13} {value}"
