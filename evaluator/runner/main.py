"""The life of a runner's process, from its fork to its end.

A runner imports the candidate, builds ``ModelNew`` and answers calls. It knows no reference output, no seed of an
input, no tolerance; ``evaluator.protocol.control_page`` defines all that it can report. Code in this package shares its
process with the candidate and is therefore never believed: the judge decides.
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
    """Serve one evaluation, or several as their baseline: warm up on request, report it, wait for the task, and do it.

    ``spec``: ``discover`` (only import, to find the extensions), ``cuda`` (whether there is a CUDA device to use). The
    task: ``files`` (written to ``directory``: ``model.py``, ``candidate.py``), ``module`` (the file to import, without
    ``.py``), ``class_name`` (the class to construct), ``tf32`` (whether torch's default, which lets convolutions round
    to TF32, stays). A descriptor of an archive may come with it, of files that the
    candidate's own compilers made in an earlier evaluation.
    """
    control = socket.socket(fileno=control_fd)
    extensions = ExtensionClient(socket.socket(fileno=build_fd), directory, placeholders=bool(spec["discover"]))
    extensions.install()
    try:
        messages.receive(control)  # the request to warm up: until then others may be measured on the device
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
    """Import the task's module, and answer the judge's calls."""
    if not task["tf32"]:
        # A candidate may switch it on again: the tolerance decides.
        torch.backends.cudnn.allow_tf32 = False
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
