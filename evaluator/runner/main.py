"""What happens in a runner's process, from its fork to its end.

A runner imports the candidate, builds ``ModelNew`` and answers calls. It knows no reference output, no
seed of an input, no tolerance; all that it can say is in ``evaluator.protocol.control_page``. Code in this package
shares its process with the candidate and is therefore never believed: the judge decides.
"""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path
from typing import Any

import torch

from evaluator.protocol import messages
from evaluator.protocol.control_page import Failure, Frame, FrameKind
from evaluator.runner.calls import CallLoop, CandidateError
from evaluator.runner.extensions import ExtensionClient
from evaluator.runner.imports import import_file
from evaluator.runner.tracebacks import classify, describe
from evaluator.sandbox.compile_archive import unpack

__all__ = ["run"]


def run(spec: dict[str, Any], directory: Path, control_fd: int, build_fd: int) -> None:
    """Serve one evaluation, or several as their baseline: warm up when told to, say so, wait for the task, and do it.

    ``spec``: ``discover`` (only import, to find the extensions), ``cuda`` (whether there is a CUDA device to use). The
    task: ``files`` (written to ``directory``: ``model.py``, ``candidate.py``), ``module`` (the one of them to import,
    without ``.py``), ``class_name`` (what to construct); with it may come a descriptor of an archive of files that the
    candidate's own compilers made in an evaluation before.
    """
    control = socket.socket(fileno=control_fd)
    extensions = ExtensionClient(socket.socket(fileno=build_fd), directory, placeholders=bool(spec["discover"]))
    extensions.install()
    # Torch allows it for convolutions unless told otherwise, and the eager baseline is as exact as the problem asks
    # for. A candidate may switch it on: the tolerance decides.
    torch.backends.cudnn.allow_tf32 = False
    try:
        messages.receive(control)  # the word to warm up: until then others may be measured on the device
        if spec["cuda"]:
            # Context, kernels and autograd's threads take a third of a second.
            torch.ones((), device="cuda", requires_grad=True).clone().backward()  # type: ignore[no-untyped-call]
            torch.cuda.synchronize()
    except (messages.ConnectionClosed, ConnectionError):
        return
    except Exception as error:  # noqa: BLE001 - nothing of a candidate's was executed yet: the device's fault
        control.sendall(Frame(FrameKind.FAILED, classify(error), describe(error, directory)).encode())
        return
    try:
        control.sendall(Frame(FrameKind.READY, Failure.NONE, "").encode())
        task, compiled = messages.receive(control)
    except (messages.ConnectionClosed, ConnectionError):
        return
    for archive in compiled:
        unpack(archive, directory)
    _serve(task, directory, control, discover=bool(spec["discover"]))


def _serve(task: dict[str, Any], directory: Path, control: socket.socket, *, discover: bool) -> None:
    """Import what the task names, and answer the judge's calls."""
    try:
        for name, text in task["files"].items():
            (directory / name).write_text(text)
        reference = import_file("model", directory)
        init_inputs = reference.get_init_inputs()
        module = reference if task["module"] == "model" else import_file(task["module"], directory)
        model_class = getattr(module, task["class_name"], None)
        if not isinstance(model_class, type):
            raise CandidateError(Failure.LOAD, f"{task['class_name']} is not a class after the module was imported")
        control.sendall(Frame(FrameKind.READY, Failure.NONE, "").encode())
        if not discover:
            with contextlib.suppress(ConnectionError):
                CallLoop(control, model_class, init_inputs).serve()
    except CandidateError as error:
        control.sendall(Frame(FrameKind.FAILED, error.failure, str(error)).encode())
    except BaseException as error:  # noqa: BLE001 - whatever the candidate raises at import is its load error
        failure = classify(error)
        failure = Failure.LOAD if failure is Failure.RUNTIME else failure
        control.sendall(Frame(FrameKind.FAILED, failure, describe(error, directory)).encode())
