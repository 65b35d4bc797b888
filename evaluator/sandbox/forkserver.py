"""The warm process that runners are forked from: torch imported, CUDA untouched, one thread.

Started as ``python -m evaluator.sandbox.forkserver FD``. Over the socket ``FD`` it takes::

    {"op": "spawn", "id": 7, "spec": {...}}  with descriptors [control, build, log]
    {"op": "kill", "id": 7}

and says ``{"event": "ready"}``, ``{"event": "spawned", "id", "pid", "refused"}`` and
``{"event": "exited", "id", "status"}``. It ends, with everything it forked, when the socket closes.

Each runner has a keeper between it and this process: the keeper enters the namespaces, forks the runner
as the first process of the new PID namespace, and takes all of it down with itself.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import struct
import sys
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from evaluator import wire
from evaluator.sandbox import namespaces

__all__ = ["main"]

_STARTED: Final = struct.Struct("<iI")
_FILE_BYTES: Final = 2**30
_YES: Final = ord("y")
_NO: Final = ord("n")
_LAYERS: Final = ("user", "pid", "network", "ipc", "uts", "mount", "proc", "read-only")


@dataclass
class _Child:
    keeper: int
    pipe: int
    pid: int = 0


def main(descriptor: int) -> None:
    """Serve until the other end of ``descriptor`` closes."""
    import torch  # noqa: PLC0415 - paid once, here, so that no runner pays it
    import torch.utils.cpp_extension  # noqa: PLC0415

    import evaluator.runner.main  # noqa: F401, PLC0415

    # Everything imported so far stays shared with the runners instead of being copied by their collector.
    gc.collect()
    gc.freeze()
    # Some versions of CUDA's libraries start a thread on being loaded; it holds no lock of ours.
    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
    connection = socket.socket(fileno=descriptor)
    # Ctrl-C goes to the whole foreground group; ending is our supervisor's decision.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    children: dict[int, _Child] = {}
    wire.send(connection, {"event": "ready", "torch": torch.__version__, "cuda": torch.version.cuda})
    with contextlib.suppress(wire.ConnectionClosed):
        while True:
            pipes = {child.pipe: number for number, child in children.items()}
            readable, _, _ = select.select([connection.fileno(), *pipes], [], [])
            for pipe in readable:
                if pipe in pipes:
                    _hear_keeper(connection, children, pipes[pipe])
            if connection.fileno() in readable:
                message, descriptors = wire.receive(connection)
                _obey(children, message, descriptors)
    for child in children.values():
        _kill(child)


def _obey(children: dict[int, _Child], message: dict[str, Any], descriptors: list[int]) -> None:
    number = int(message["id"])
    if message["op"] == "spawn":
        ours, theirs = os.pipe()
        keeper = os.fork()
        if keeper == 0:
            _keep(message["spec"], descriptors, theirs)
        for descriptor in (theirs, *descriptors):
            os.close(descriptor)
        children[number] = _Child(keeper, ours)
    elif number in children:
        _kill(children[number])


def _hear_keeper(connection: socket.socket, children: dict[int, _Child], number: int) -> None:
    child = children[number]
    data = os.read(child.pipe, _STARTED.size)
    if child.pid == 0 and len(data) == _STARTED.size:
        child.pid, refused = _STARTED.unpack(data)
        layers = [layer for bit, layer in enumerate(_LAYERS) if refused >> bit & 1]
        wire.send(connection, {"event": "spawned", "id": number, "pid": child.pid, "refused": layers})
        return
    # The second message is the runner's wait status; an end without one means that the keeper was killed.
    status = int.from_bytes(data, "little") if data else int(signal.SIGKILL)
    os.close(child.pipe)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(child.keeper, 0)
    del children[number]
    wire.send(connection, {"event": "exited", "id": number, "status": status})


def _kill(child: _Child) -> None:
    # The runner is process 1 of its namespace: its end is the end of everything in there.
    for pid in (child.pid, child.keeper if child.pid == 0 else 0):
        if pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _keep(spec: dict[str, Any], descriptors: list[int], pipe: int) -> None:
    """The keeper's whole life. Never returns."""
    try:
        namespaces.die_with_parent()
        namespaces.adopt_orphans()
        os.setsid()
        refused = namespaces.unshare_all()
        namespaces.die_with_parent()  # entering a user namespace has cleared it
        ready_read, ready_write = os.pipe()
        runner = os.fork()
        if runner == 0:
            os.close(ready_read)
            _become_runner(spec, descriptors, ready_write, "pid" not in refused)
        os.close(ready_write)
        # One letter for each layer that only the runner itself can put on.
        refused += [
            layer
            for layer, letter in zip(("proc", "read-only"), os.read(ready_read, 2), strict=False)
            if letter != _YES
        ]
        bits = sum(1 << bit for bit, layer in enumerate(_LAYERS) if layer in refused)
        os.write(pipe, _STARTED.pack(runner, bits))
        namespaces.close_descriptors({pipe})
        _, status = os.waitpid(runner, 0)
        namespaces.kill_descendants()
        os.write(pipe, status.to_bytes(4, "little"))
    except BaseException:  # noqa: BLE001 - reported, and then the process ends in any case
        traceback.print_exc()
    finally:
        os._exit(0)


def _become_runner(spec: dict[str, Any], descriptors: list[int], ready: int, own_pids: bool) -> None:
    """The runner's whole life. Never returns."""
    code = 70
    try:
        namespaces.die_with_parent()
        proc = own_pids and namespaces.remount_proc()
        read_only = proc and namespaces.make_read_only(Path(spec["directory"]))
        os.write(ready, bytes(_YES if layer else _NO for layer in (proc, read_only)))
        control, build, log = descriptors
        null = os.open("/dev/null", os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        namespaces.close_descriptors({0, 1, 2, control, build})
        namespaces.clear_environment(spec["environment"])
        namespaces.limit_resources(_FILE_BYTES)
        namespaces.drop_privileges()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.chdir(spec["directory"])

        from evaluator.runner.main import run  # noqa: PLC0415 - already imported by main()

        run(spec, control, build)
        code = 0
    except SystemExit:
        code = 71
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        # No interpreter shutdown: atexit handlers and destructors of the candidate's have no say any more.
        os._exit(code)


if __name__ == "__main__":
    main(int(sys.argv[1]))
