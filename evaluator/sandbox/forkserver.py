"""The warm process that runners are forked from: torch imported, CUDA untouched, one thread.

Started as ``python -m evaluator.sandbox.forkserver FD``. Over the socket ``FD`` it takes::

    {"op": "spawn", "id": 7, "spec": {...}}  with descriptors [control, build, log], or none for a trial
    {"op": "kill", "id": 7}

and sends ``{"event": "ready"}``, ``{"event": "spawned", "id", "pid", "group", "directory", "refused"}`` and
``{"event": "exited", "id", "status", "out_of_memory", "killed_for_others", "left", "archive"}``. It ends, with
everything it forked, when the socket closes.

Each runner has a reaper between it and this process. The reaper enters the namespaces, and forks the runner as the
first process of the new PID namespace. The reaper takes all of it down with itself.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from evaluator.devices.machine_memory import available_memory_bytes
from evaluator.logs import report
from evaluator.protocol import messages
from evaluator.sandbox import namespaces
from evaluator.sandbox.cgroups import Group, GroupParent
from evaluator.sandbox.compile_archive import FOLDERS, pack
from evaluator.sandbox.confinement import Confinement, confine
from evaluator.sandbox.filesystem import WORKING_FOLDER
from evaluator.sandbox.layers import Layer
from evaluator.sandbox.priority import lower_priority_of
from evaluator.sandbox.syscalls import compile_filter

__all__ = ["main"]

_MESSAGE_BYTES: Final = 4096
_WATCH_S: Final = 0.1
_MIN_SHARE: Final = 4
"""A runner without a group of its own must leave a fourth of the memory that was available when this process began.
(Another runner may be at work when this one is forked.)
"""


@dataclass
class _Child:
    reaper: int
    connection: socket.socket
    low_priority: bool
    pid: int = 0


def main(descriptor: int) -> None:
    """Serve until the other end of ``descriptor`` closes."""
    import torch  # noqa: PLC0415 - paid once, here, so that no runner pays it
    import torch.utils.cpp_extension  # noqa: PLC0415

    import evaluator.runner.main  # noqa: F401, PLC0415

    # All modules imported so far stay shared with the runners instead of being copied by their collector.
    gc.collect()
    gc.freeze()
    # Some versions of CUDA's libraries start a thread on being loaded; it holds no lock of ours.
    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
    connection = socket.socket(fileno=descriptor)
    # Ctrl-C goes to the whole foreground group; ending is our supervisor's decision.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    compile_filter()  # once, here, for all runners
    groups = GroupParent.open()
    least_bytes = available_memory_bytes() // _MIN_SHARE
    children: dict[int, _Child] = {}
    messages.send(connection, {"event": "ready", "torch": torch.__version__, "cuda": torch.version.cuda})
    with contextlib.suppress(messages.ConnectionClosed):
        while True:
            reapers = {child.connection.fileno(): number for number, child in children.items()}
            readable, _, _ = select.select([connection.fileno(), *reapers], [], [])
            for reaper in readable:
                if reaper in reapers:
                    _read_reaper(connection, children, reapers[reaper])
            if connection.fileno() in readable:
                message, descriptors = messages.receive(connection)
                _obey(children, message, descriptors, groups, least_bytes)
    for child in children.values():
        _kill(child)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child.reaper, 0)
    if groups is not None:
        groups.close()


def _obey(
    children: dict[int, _Child],
    message: dict[str, Any],
    descriptors: list[int],
    groups: GroupParent | None,
    least_bytes: int,
) -> None:
    number = int(message["id"])
    if message["op"] == "spawn":
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        reaper = os.fork()
        if reaper == 0:
            _run_reaper(message["spec"], descriptors, theirs, groups, number, least_bytes)
        theirs.close()
        for descriptor in descriptors:
            os.close(descriptor)
        children[number] = _Child(reaper, ours, low_priority=bool(message["spec"].get("discover")))
    elif number in children:
        _kill(children[number])


def _read_reaper(connection: socket.socket, children: dict[int, _Child], number: int) -> None:
    child = children[number]
    data = child.connection.recv(_MESSAGE_BYTES)
    if data and child.pid == 0:
        started = json.loads(data)
        child.pid = started["pid"]
        if child.low_priority:
            lower_priority_of(child.pid)
        messages.send(connection, {"event": "spawned", "id": number, **started})
        return
    # The second message is about the runner's end; an end without one means that the reaper was killed.
    killed = {"out_of_memory": False, "killed_for_others": False, "left": False, "archive": ""}
    ended = json.loads(data) if data else {"status": int(signal.SIGKILL), **killed}
    child.connection.close()
    with contextlib.suppress(ChildProcessError):
        os.waitpid(child.reaper, 0)
    del children[number]
    messages.send(connection, {"event": "exited", "id": number, **ended})


def _kill(child: _Child) -> None:
    # The runner is process 1 of its namespace: its end is the end of everything in there.
    for pid in (child.pid, child.reaper if child.pid == 0 else 0):
        if pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _run_reaper(
    spec: dict[str, Any],
    descriptors: list[int],
    connection: socket.socket,
    groups: GroupParent | None,
    number: int,
    least_bytes: int,
) -> None:
    """Run the reaper from start to end. Never returns."""
    confinement = Confinement.from_json(spec["confinement"])
    directory: Path | None = None
    group: Group | None = None
    try:
        namespaces.die_with_parent()
        namespaces.adopt_orphans()
        os.setsid()
        directory = Path(tempfile.mkdtemp(prefix="runner-", dir=spec["scratch"]))
        if groups is not None:
            group = groups.create(
                f"runner-{number}", memory_bytes=confinement.memory_bytes, processes=confinement.processes
            )
        refused = namespaces.unshare_all()
        namespaces.die_with_parent()  # entering a user namespace has cleared it
        ready_read, ready_write = os.pipe()
        runner = os.fork()
        if runner == 0:
            os.close(ready_read)
            _become_runner(spec, descriptors, ready_write, directory, refused, group)
        os.close(ready_write)
        # Only the runner itself can put the rest on, and report refused layers. No report: it died before.
        told = os.read(ready_read, _MESSAGE_BYTES)
        started = json.loads(told) if told else {"refused": [], "group": None, "directory": str(directory)}
        working_folder = _working_folder(runner) if spec.get("keeps_compiled") else None
        connection.send(json.dumps({"pid": runner, **started}).encode())
        namespaces.close_descriptors({connection.fileno(), *([] if working_folder is None else [working_folder])})
        # Without a group to limit it, a runner must not exhaust the machine's memory.
        watched = bool(spec.get("watched")) and Layer.CGROUP in started["refused"]
        status, out_of_memory = _await_end(runner, least_bytes if watched else None)
        namespaces.kill_descendants()
        out_of_memory = out_of_memory or (group is not None and group.ran_out_of_memory())
        for_others = not out_of_memory and group is not None and group.was_killed_for_others()
        archive = Path(spec["scratch"]) / f"compiled-{number}.tar"
        kept = working_folder is not None and pack(working_folder, archive)
        if working_folder is not None:
            os.close(working_folder)  # with it goes the memory of the files
        left = group is not None and not group.remove()
        with contextlib.suppress(RecursionError):
            shutil.rmtree(directory, ignore_errors=True)
        ended = {"status": status, "out_of_memory": out_of_memory, "killed_for_others": for_others, "left": left}
        connection.send(json.dumps({**ended, "archive": str(archive) if kept else ""}).encode())
    except BaseException:  # noqa: BLE001 - reported, and then the process ends in any case
        report(__name__, "the keeper of a runner failed", number)
    finally:
        os._exit(0)


def _working_folder(runner: int) -> int | None:
    """Return a descriptor of the runner's working folder; ``None`` where the kernel refuses its reaper access.

    The folder is in a root of its own, and is gone with its last process and descriptor.
    """
    try:
        return os.open(f"/proc/{runner}/cwd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None


def _await_end(runner: int, least_bytes: int | None) -> tuple[int, bool]:
    """Return the wait status, and whether the runner was ended because less memory than ``least_bytes`` was left."""
    if least_bytes is None:
        return os.waitpid(runner, 0)[1], False
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    out_of_memory = False
    while True:
        pid, status = os.waitpid(runner, os.WNOHANG)
        if pid:
            return status, out_of_memory
        if available_memory_bytes() < least_bytes:
            os.kill(runner, signal.SIGKILL)
            out_of_memory = True
        signal.sigtimedwait({signal.SIGCHLD}, _WATCH_S)


def _become_runner(
    spec: dict[str, Any],
    descriptors: list[int],
    ready: int,
    directory: Path,
    refused: list[Layer],
    group: Group | None,
) -> None:
    """Run the runner from start to end. Never returns."""
    code = 70
    try:
        namespaces.die_with_parent()
        os.setsid()  # its reaper must not be in its process group: kill(0) knows no namespaces
        if group is not None and not group.join():
            group = None
        limited = group is not None and group.limits
        if not limited:
            refused = [*refused, Layer.CGROUP]
        refused = confine(Confinement.from_json(spec["confinement"]), directory, refused, memory_is_grouped=limited)
        folder = Path.cwd()
        told = {
            "refused": refused,
            "group": None if group is None else str(group.path),
            "directory": str(folder),
        }
        if not descriptors:
            os.write(ready, json.dumps(told).encode())
            os._exit(0)
        control, build, log = descriptors
        null = os.open("/dev/null", os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        own_root = str(folder) == WORKING_FOLDER
        namespaces.clear_environment(spec["environment"] | _private_environment(folder, own_root=own_root))
        os.write(ready, json.dumps(told).encode())
        namespaces.close_descriptors({0, 1, 2, control, build})
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        # The output must be there even if the process is killed in the next moment.
        sys.stdout = open(1, "w", buffering=1, errors="replace", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", buffering=1, errors="replace", closefd=False)  # noqa: SIM115

        from evaluator.runner.main import run  # noqa: PLC0415 - already imported by main()

        run(spec, folder, control, build)
        code = 0
    except SystemExit:
        code = 71
    except Exception:  # noqa: BLE001 - ours, and told to whoever reads the log
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        # No interpreter shutdown: atexit handlers and destructors of the candidate's must not run any more.
        os._exit(code)


def _private_environment(folder: Path, *, own_root: bool) -> dict[str, str]:
    """The variables that lead side files of tools into a folder that ends with the runner."""
    return {
        "HOME": str(folder),
        "USER": "candidate",
        "TMPDIR": "/tmp" if own_root else str(folder),  # noqa: S108 - in a root of its own
        "TORCH_EXTENSIONS_DIR": str(folder / "extensions"),
        **{variable: str(folder / name) for variable, name in FOLDERS.items()},
    }


if __name__ == "__main__":
    main(int(sys.argv[1]))
