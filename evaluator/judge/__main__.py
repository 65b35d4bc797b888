"""The judge's process, one per device: ``python -m evaluator.judge KIND FOLDER FD``.

It lives as long as its supervisor, and talks to it over the socket ``FD``:

- It takes ``{"op": "begin"}`` before runners get their tasks, and answers ``begun``.
- It takes ``{"op": "evaluate", ...}`` with the control sockets of the candidates and the baseline. A reused baseline
  has none.
- It says ``prepared`` when the runners may be given their tasks, and reports progress.
- It says ``stop_starting`` before the calibration on an idle device, and ``allow_device_use`` when others may come to
  the device.
- It says ``quiesce`` before it measures figures. The answer to it says whether the others are ``waiting``;
  ``stop_starting`` has an answer with the same ``op`` as well.
- It answers with its ``result``: the outcome of each candidate.
- It frees the shared memory on ``{"op": "clean_up"}``, which may come at any time after ``evaluate``. The message says
  whether the baseline is kept for the next session.

In ``FOLDER`` it keeps the measurements of its device. No byte of a candidate ever comes here.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import Any, Literal

import torch

from evaluator.config import EvalConfig, Limits, SamplingPlan
from evaluator.errors import DeviceUnavailable, DoesNotFit, ProblemError
from evaluator.judge.device.cpu import CpuDevice
from evaluator.judge.device.cuda import CudaDevice
from evaluator.judge.device.device import Device
from evaluator.judge.link import RunnerLink
from evaluator.judge.session import KeptBaseline, Session, Supervisor
from evaluator.judge.timing.timed_call import Participant
from evaluator.problems.problem import Problem
from evaluator.protocol import messages
from evaluator.sandbox.freezer import Freezer
from kerneljudge.terms.rules import Rules

__all__ = ["main"]


def main(kind: str, peak_rates_folder: Path, descriptor: int) -> None:
    """Serve until the supervisor closes its end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    supervisor = socket.socket(fileno=descriptor)
    # A candidate or baseline sets its own process as it likes.
    torch.backends.cuda.matmul.allow_tf32 = False
    with contextlib.suppress(messages.ConnectionClosed):
        try:
            device = CpuDevice(peak_rates_folder) if kind == "cpu" else CudaDevice(peak_rates_folder)
        except (RuntimeError, AssertionError) as error:
            messages.send(supervisor, {"event": "refused", "error": DeviceUnavailable.__name__, "message": str(error)})
            return
        messages.send(supervisor, {"event": "ready", "environment": device.describe()})
        # Torch imports it with the first operator on the meta device, which takes a second; the supervisor has other
        # things to start now.
        importlib.import_module("torch._dynamo")
        # Modules stay: a search for garbage among their 300,000 objects takes a tenth of a second, perhaps during a
        # timed call.
        gc.freeze()
        kept: KeptBaseline | None = None
        while True:
            message, descriptors = messages.receive(supervisor)
            if message["op"] == "begin":
                device.note_waiting(message["waiting"])
                device.peak_rates()  # measured while no other process can disturb it
                device.note_idle()
                messages.send(supervisor, {"event": "begun"})
                continue
            kept = _evaluate(supervisor, device, message, descriptors, kept)
            # The parts of a session refer to each other: its reference's model would stay for several more sessions.
            gc.collect()
            device.release_cache()


class _Withdrawn(Exception):
    """The supervisor wants no outcome any more, and said ``answer``."""

    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__()
        self.answer = answer


def _evaluate(
    supervisor: socket.socket,
    device: Device,
    message: dict[str, Any],
    descriptors: list[int],
    kept: KeptBaseline | None,
) -> KeptBaseline | None:
    """Carry one session out; return its baseline where that is kept. ``kept``: the baseline of the session before."""

    def side(name: Literal["candidate", "baseline"], freezer: dict[str, Any]) -> Participant:
        link = RunnerLink(socket.socket(fileno=descriptors.pop(0)), device.spin_s)
        return Participant(name, link, Freezer(**freezer), device.memory_of(freezer["pid"]))

    candidates = [side("candidate", freezer) for freezer in message["candidates"]]
    baseline: Participant | KeptBaseline
    if message["baseline"] is None:
        assert kept is not None
        baseline = kept
    else:
        if kept is not None:
            kept.side.close()
        baseline = side("baseline", message["baseline"])

    def progress(index: int, stage: str, text: str, share: float | None) -> None:
        event = {"event": "progress", "candidate": index, "stage": stage, "message": text, "share": share}
        messages.send(supervisor, event)

    def prepared() -> None:
        messages.send(supervisor, {"event": "prepared"})

    def allow_device_use() -> None:
        messages.send(supervisor, {"event": "allow_device_use"})

    def stop_starting() -> None:
        ask("stop_starting")

    def quiesce() -> bool:
        return bool(ask("quiesce")["waiting"])

    def ask(question: str) -> dict[str, Any]:
        messages.send(supervisor, {"event": question})
        answer, _ = messages.receive(supervisor)
        if answer["op"] != question:
            raise _Withdrawn(answer)
        return answer

    problem, config = Problem.from_dict(message["problem"]), _config(message["config"])
    # The native-precision reference rounds as the baseline does; what is computed in float64 does not depend on it.
    torch.backends.cudnn.allow_tf32 = problem.tf32_in(config)
    session = Session(
        problem,
        config,
        device,
        candidates,
        baseline,
        Supervisor(progress, prepared, stop_starting, allow_device_use, quiesce),
        contexts=message["contexts"],
        spare=message["spare"],
        keeps=message["keeps"],
    )
    answer: dict[str, Any] | None = None
    try:
        found = session.run()
        messages.send(supervisor, {"event": "result", **found.to_dict()})
    except (DoesNotFit, ProblemError) as error:
        messages.send(supervisor, {"event": "refused", "error": type(error).__name__, "message": str(error)})
    except _Withdrawn as withdrawn:
        answer = withdrawn.answer
    except messages.ConnectionClosed:
        raise
    except Exception:  # noqa: BLE001 - reported as our fault, with all that is known
        messages.send(supervisor, {"event": "fault", "message": traceback.format_exc()})
    # Runners map the shared memory: it is freed when the supervisor says that they are gone.
    if answer is None:
        answer, _ = messages.receive(supervisor)
    keeps = bool(answer["keeps_baseline"])
    messages.send(supervisor, {"event": "clean", "left": session.close(keeps_baseline=keeps)})
    return session.kept if keeps else None


def _config(data: dict[str, Any]) -> EvalConfig:
    limits, sampling = Limits(**data["limits"]), SamplingPlan(**data["sampling"])
    return EvalConfig(**{**data, "limits": limits, "sampling": sampling, "rules": Rules.from_dict(data["rules"])})


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
