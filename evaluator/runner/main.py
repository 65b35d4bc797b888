"""What happens in a runner's process, from its fork to its end.

A runner imports the candidate, builds ``ModelNew`` and answers calls. It knows no reference output, no
seed of an input, no tolerance; all that it can say is in ``evaluator.protocol``. Code in this package
shares its process with the candidate and is therefore never believed: the judge decides.
"""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path
from typing import Any

import torch

from evaluator.protocol import Failure, Frame, FrameKind
from evaluator.runner.calls import CallLoop, CandidateError
from evaluator.runner.extensions import ExtensionClient
from evaluator.runner.imports import import_file
from evaluator.runner.tracebacks import classify, describe

__all__ = ["run"]


def run(spec: dict[str, Any], directory: Path, control_fd: int, build_fd: int) -> None:
    """Serve one evaluation.

    ``directory`` holds ``candidate.py`` and ``model.py``. ``spec``: ``class_name`` (what to construct),
    ``module`` (the file that defines it, without ``.py``), ``discover`` (only import, to find the extensions),
    ``cuda`` (whether there is a CUDA device to use).
    """
    control = socket.socket(fileno=control_fd)
    extensions = ExtensionClient(socket.socket(fileno=build_fd), directory, placeholders=bool(spec["discover"]))
    extensions.install()
    # Torch allows it for convolutions unless told otherwise, and the eager baseline is as exact as the problem asks
    # for. A candidate may switch it on: the tolerance decides.
    torch.backends.cudnn.allow_tf32 = False
    try:
        if spec["cuda"]:
            # Context, kernels and autograd's threads take half a second, which passes while the other runner and
            # the judge are at the same. What is wrong with the device shows when the model is constructed.
            with contextlib.suppress(Exception):
                torch.ones(1, device="cuda", requires_grad=True).square().sum().backward()  # type: ignore[no-untyped-call]
        reference = import_file("model", directory)
        init_inputs = reference.get_init_inputs()
        module = reference if spec["module"] == "model" else import_file(spec["module"], directory)
        model_class = getattr(module, spec["class_name"], None)
        if not isinstance(model_class, type):
            raise CandidateError(Failure.LOAD, f"{spec['class_name']} is not a class after the module was imported")
        control.sendall(Frame(FrameKind.READY, Failure.NONE, "").encode())
        if not spec["discover"]:
            with contextlib.suppress(ConnectionError):
                CallLoop(control, model_class, init_inputs).serve()
    except CandidateError as error:
        control.sendall(Frame(FrameKind.FAILED, error.failure, str(error)).encode())
    except BaseException as error:  # noqa: BLE001 - whatever the candidate raises at import is its load error
        failure = classify(error)
        failure = Failure.LOAD if failure is Failure.RUNTIME else failure
        control.sendall(Frame(FrameKind.FAILED, failure, describe(error, directory)).encode())
