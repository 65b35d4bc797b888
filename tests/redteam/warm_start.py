"""Mutants that need not wait for torch: ``python -P -m tests.redteam.warm_start``, from which each is forked.

Importing torch in the judge and in the process that runners are forked from takes most of the time of a mutant's only
evaluation, and no mutation changes torch. So it is imported once, here, and no module of the evaluator is. A mutant
imports its own copy of these. Its trusted processes are forked from it before, and then become what they would be as
processes of their own: the same modules as ``__main__``, with the same arguments, variables and descriptors.

Takes lines of JSON, ``{"folder", "paths", "timeout_s", "run"}``, and answers each with
``{"status", "printed", "errors"}``.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, Final

__all__ = ["main"]

_TRUSTED: Final = 3
"""Judge, builder, and the process that runners are forked from. One that replaces another is started as ever."""
_MESSAGE_BYTES: Final = 2**20


def main() -> None:
    """Serve until the standard input ends."""
    import torch._dynamo  # the judge imports it when it is ready
    import torch.utils.cpp_extension  # noqa: F401 - as the process that runners are forked from does

    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        print(json.dumps(_answer(json.loads(line))), flush=True)


def _answer(request: Mapping[str, Any]) -> dict[str, Any]:
    folder = Path(request["folder"])
    pid = os.fork()
    if pid == 0:
        try:
            _become_mutant(folder, request)
            os._exit(0)
        except BaseException:  # noqa: BLE001 - told to the process that asked
            traceback.print_exc()
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return {
        "status": status,
        "printed": (folder / "printed").read_text(),
        "errors": (folder / "errors").read_text(errors="replace"),
    }


def _become_mutant(folder: Path, request: Mapping[str, Any]) -> None:
    for name, descriptor in (("printed", 1), ("errors", 2)):
        with (folder / name).open("wb") as file:
            os.dup2(file.fileno(), descriptor)
    signal.alarm(request["timeout_s"])
    os.chdir(folder)
    sys.path[:] = request["paths"]
    trusted = [_ToBe() for _ in range(_TRUSTED)]

    import evaluator
    from evaluator.protocol import child_process
    from tests.redteam import mutant

    assert Path(evaluator.__file__).parent == folder / "evaluator", "this is not the mutant"

    def popen(command: list[str], **options: Any) -> Any:
        return trusted.pop().become(command, **options) if trusted else subprocess.Popen(command, **options)

    child_process.subprocess = SimpleNamespace(  # type: ignore[attr-defined]
        Popen=popen,
        PIPE=subprocess.PIPE,
        DEVNULL=subprocess.DEVNULL,
        TimeoutExpired=subprocess.TimeoutExpired,
    )
    mutant.main(**request["run"])
    sys.stdout.flush()


class _ToBe:
    """A process that is still nothing, and becomes a Python process on request: as much of ``subprocess.Popen`` as
    ``ChildProcess`` uses."""

    def __init__(self) -> None:
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.stderr: IO[bytes] | None = None
        self._status: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            self._connection.close()
            try:
                _wait_for_a_part(theirs)
                os._exit(0)
            except SystemExit as ended:
                os._exit(ended.code if isinstance(ended.code, int) else 1)
            except BaseException:  # noqa: BLE001 - the log has it
                traceback.print_exc()
                os._exit(1)
        theirs.close()

    def become(
        self, command: Sequence[str], *, pass_fds: Sequence[int], env: Mapping[str, str], stdin: int, stderr: int
    ) -> _ToBe:
        """Be the process of ``[sys.executable, "-P", "-m", module, *arguments, descriptor]`` from now on."""
        assert (stdin, stderr) == (subprocess.DEVNULL, subprocess.PIPE)
        executable, safe, module_follows, module, *arguments, descriptor = command
        assert (executable, safe, module_follows) == (sys.executable, "-P", "-m")
        assert [int(descriptor)] == list(pass_fds)
        reading, writing = os.pipe()
        part = {"module": module, "arguments": arguments, "environment": dict(env)}
        socket.send_fds(self._connection, [json.dumps(part).encode()], [int(descriptor), writing])
        os.close(writing)
        self._connection.close()
        self.stderr = os.fdopen(reading, "rb")
        return self

    def poll(self) -> int | None:
        if self._status is None and os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            self._status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._status

    def wait(self, timeout: float | None = None) -> int:
        if self._status is None:
            descriptor = os.pidfd_open(self.pid)
            try:
                _await(descriptor, timeout)
            finally:
                os.close(descriptor)
        status = self.poll()
        assert status is not None
        return status

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


def _await(descriptor: int, timeout: float | None) -> None:
    import select

    if not select.select([descriptor], [], [], timeout)[0]:
        raise subprocess.TimeoutExpired("a trusted process of a mutant", timeout or 0.0)


def _wait_for_a_part(connection: socket.socket) -> None:
    # Whatever else is open belongs to the mutant, or to another of its processes.
    kept = connection.fileno()
    os.closerange(3, kept)
    os.closerange(kept + 1, 2**16)
    told, descriptors, _, _ = socket.recv_fds(connection, _MESSAGE_BYTES, 2)
    connection.close()
    if not told:
        return  # the mutant ended without need of this one
    signal.alarm(0)
    part = json.loads(told)
    talking, writing = descriptors
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(writing, 2)
    os.close(null)
    os.close(writing)
    os.environ.clear()
    os.environ.update(part["environment"])
    sys.path[:] = [*part["environment"]["PYTHONPATH"].split(os.pathsep), *(path for path in sys.path if path)]
    sys.argv[:] = ["", *part["arguments"], str(talking)]
    runpy.run_module(part["module"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
