"""The program under a tool: one forward and one backward of a candidate, in a process of its own.

``python -m evaluator.diagnosis.target SPEC`` runs inside of the sandbox, where nothing of this package exists but this
file and its imports. It shares its process with the candidate, so nothing that it reports is believed.
"""

from __future__ import annotations

import json
import socket
import sys
import traceback
from pathlib import Path
from typing import Any, Final

import torch

from evaluator.dtypes import is_differentiable
from evaluator.protocol import messages
from evaluator.runner.extensions import ExtensionClient
from evaluator.runner.imports import import_file

__all__ = ["main"]

_MAX_ERROR: Final = 4000


def main(path: str) -> None:
    """Run the candidate. ``path``: a JSON file with ``device``, ``precision``, ``seed``, ``build`` and ``outcome``."""
    spec: dict[str, Any] = json.loads(Path(path).read_text())
    stage = "importing"

    def enter(name: str, error: str = "") -> None:
        nonlocal stage
        stage = name
        Path(spec["outcome"]).write_text(json.dumps({"stage": name, "error": error[:_MAX_ERROR]}))

    enter("importing")
    try:
        folder = Path.cwd()
        ExtensionClient(_build_socket(spec["build"]), folder, placeholders=False).install()
        reference, candidate = import_file("model", folder), import_file("candidate", folder)
        device, dtype = torch.device(spec["device"]), getattr(torch, spec["precision"])
        enter("constructing")
        torch.manual_seed(spec["seed"])
        model = candidate.ModelNew(*reference.get_init_inputs())
        model = model.to(device) if dtype is torch.float32 else model.to(device, dtype)
        with device:
            inputs = [_placed(value, device, dtype) for value in reference.get_inputs()]
        enter("forward")
        _profile(device, on=True)
        with torch.no_grad():
            model(*inputs)
        _synchronize(device)
        enter("backward")
        _backward(model, inputs)
        _synchronize(device)
        _profile(device, on=False)
        enter("done")
    except BaseException as error:  # noqa: BLE001 - whatever the candidate raises is what is to be told
        traceback.print_exc()
        enter(stage, "".join(traceback.format_exception_only(error)).strip())
        raise SystemExit(1) from None


def _build_socket(path: str) -> socket.socket:
    """Request the builder's socket, because a tool may close inherited descriptors."""
    with socket.socket(socket.AF_UNIX) as door:
        door.connect(path)
        _, descriptors = messages.receive(door)
    return socket.socket(fileno=descriptors[0])


def _placed(value: Any, device: torch.device, dtype: torch.dtype) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    # As in the judge: parts in another precision keep it, unless a lower one is asked for.
    lowered = dtype is not torch.float32 and is_differentiable(value) and not value.is_complex()
    return value.to(device, dtype) if lowered else value.to(device)


def _backward(model: torch.nn.Module, inputs: list[Any]) -> None:
    """Compute gradients of every input and parameter, as far as the outputs carry a graph."""
    leaves = [value.detach().requires_grad_() if is_differentiable(value) else value for value in inputs]
    result = model(*leaves)
    outputs = [
        output
        for output in (result if isinstance(result, tuple | list) else [result])
        if isinstance(output, torch.Tensor) and output.requires_grad
    ]
    if outputs:
        torch.autograd.backward(outputs, [torch.randn_like(output) for output in outputs])


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def _profile(device: torch.device, *, on: bool) -> None:
    """Start or stop the profiler: earlier work, such as drawing the inputs, is not to be measured."""
    if device.type == "cuda":
        torch.cuda.synchronize()
        runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call] # torch leaves it unannotated
        runtime.cudaProfilerStart() if on else runtime.cudaProfilerStop()


if __name__ == "__main__":
    main(sys.argv[1])
