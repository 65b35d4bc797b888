"""A tool with a candidate below it, in a sandbox: ``python -m evaluator.diagnosis.confined BUILD_FD``.

A runner is forked from a warm process; a tool has to start its program itself. So this process works like a compiler's
(see ``evaluator.builder.recipes.plain``): it puts the sandbox on, and only then starts the tool, which starts a fresh
interpreter. It reads its task from standard input. The last line of standard error is a JSON object with the tool's
report. Torch-free.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Final, NoReturn

from evaluator.interpreter import python_command
from evaluator.protocol import messages
from evaluator.sandbox.confinement import Confinement, move_in

__all__ = ["main"]

_SUPPORT: Final = (
    "evaluator/__init__.py",
    "evaluator/dtypes.py",
    "evaluator/protocol/__init__.py",
    "evaluator/protocol/messages.py",
    "evaluator/runner/__init__.py",
    "evaluator/runner/extensions.py",
    "evaluator/runner/imports.py",
    "evaluator/diagnosis/__init__.py",
    "evaluator/diagnosis/target.py",
)
"""The parts of this package that the target needs: its root has nothing else of it."""
_FOLDER: Final = "support"
_REPORT: Final = "report.txt"
_REPORT_BYTES: Final = 2**19
_OUTCOME_BYTES: Final = 2**14
_SIOCGIFFLAGS, _SIOCSIFFLAGS = 0x8913, 0x8914
_IFF_UP: Final = 1


def main(build_fd: int) -> None:
    """Run the tool once."""
    payload = json.load(sys.stdin)
    packages = Path(__file__).parent.parent.parent
    support = {name: (packages / name).read_text() for name in _SUPPORT}
    move_in(Confinement.from_json(payload["confinement"]), Path.cwd(), before=_raise_loopback)
    folder = Path.cwd()
    for name, text in {**payload["files"], **{f"{_FOLDER}/{name}": text for name, text in support.items()}}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    door = folder / "build.socket"
    spec = {**payload["spec"], "build": str(door), "outcome": str(folder / "outcome.json")}
    (folder / "spec.json").write_text(json.dumps(spec))
    environment = {
        **payload["environment"],
        "HOME": str(folder),
        "TMPDIR": "/tmp" if os.access("/tmp", os.W_OK) else str(folder),  # noqa: S108 - in a root of its own
        "PYTHONPATH": str(folder / _FOLDER),
        "TORCH_EXTENSIONS_DIR": str(folder / "extensions"),
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "CUDA_CACHE_PATH": str(folder / "cuda"),
    }
    threading.Thread(target=_hand_out, args=(_listen(door), build_fd), daemon=True).start()
    report = folder / _REPORT
    command = [
        *(part.replace("{report}", str(report)) for part in payload["tool"]),
        *python_command("-m", "evaluator.diagnosis.target", str(folder / "spec.json")),
    ]
    null = os.open(os.devnull, os.O_RDONLY)
    try:
        ended = subprocess.run(command, env=environment, stdin=null, stderr=subprocess.STDOUT)
        status: int | None = ended.returncode
    except OSError as error:
        status = None
        report.write_text(f"{type(error).__name__}: {error}")
    _conclude(
        {
            "status": status,
            "report": _read(report, _REPORT_BYTES),
            "outcome": _read(Path(spec["outcome"]), _OUTCOME_BYTES),
        }
    )


def _raise_loopback() -> None:
    """Enable the loopback of this network namespace, through which the tools talk to the program that they started."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack("16sH14x", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | _IFF_UP))


def _listen(door: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(door))
    listener.listen(1)
    return listener


def _hand_out(listener: socket.socket, descriptor: int) -> None:
    """Give the builder's socket to the first process that connects: it is the candidate's in any case."""
    with listener, contextlib.suppress(OSError):
        connection, _ = listener.accept()
        with connection:
            messages.send(connection, {}, [descriptor])


def _read(path: Path, limit: int) -> str:
    """Return the beginning of a file that a candidate may have put in the place of the right one."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            return file.read(limit).decode("utf-8", "replace")
    return ""


def _conclude(result: dict[str, Any]) -> NoReturn:
    sys.stderr.write("\n" + json.dumps(result) + "\n")
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
