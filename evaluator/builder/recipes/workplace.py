"""The parts that every recipe's process shares: read a task, enter the sandbox, run ninja, report. Torch-free.

``python -m <module> FD`` reads a task from standard input as one JSON object, and works in the folder that it was
started in. The compiler's output goes to standard output, the finished library to the descriptor ``FD``. The last line
of standard error is a JSON object, the *report*.

Its ``outcome``, with the exit status, is one of three:

- ``built`` (0);
- ``failed`` (1): the compiler's output is for the candidate's author;
- ``refused`` (``REFUSED``): not for this recipe, the next one is tried.

A process that ends without a report has refused.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from evaluator.builder.diagnostics import demangled
from evaluator.builder.resources import KernelResources, ResourceReader, short_name
from evaluator.sandbox.confinement import Confinement, move_in
from evaluator.sandbox.priority import lower_priority

__all__ = ["REFUSED", "Task", "begin", "deliver", "fail", "refuse", "run_ninja", "succeed"]

REFUSED: Final = 75
"""The exit status of a recipe that leaves the request to the next one."""

_MAX_REASON: Final = 300


@dataclass(frozen=True)
class Task:
    """A build task, as the builder has validated it.

    ``request`` has the fields of a ``BuildRequest`` and ``uses_cuda``. ``prepared`` is the folder of this recipe's
    preparation; ``None`` where it needs none.
    """

    request: dict[str, Any]
    directory: Path
    line_information: bool
    prepared: Path | None


def begin() -> Task:
    """Read the task and go on in the sandbox: the project's own modules cannot be imported any more."""
    payload = json.load(sys.stdin)
    lower_priority()
    # The compiler sees the parts of the machine that it needs, and no more.
    move_in(Confinement.from_json(payload["confinement"]), Path.cwd())
    directory = Path.cwd()
    os.environ |= {"HOME": str(directory), "TMPDIR": str(directory)}
    prepared = payload["prepared"]
    return Task(
        payload["request"], directory, payload["line_information"], None if prepared is None else Path(prepared)
    )


def run_ninja(
    targets: Sequence[str],
    directory: Path,
    *,
    reader: ResourceReader,
    quiet: bool,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Run ninja, pass its output on, and return it; ``quiet``: pass on only the lines that ``reader`` takes.

    ``environment`` is added to this process's own. Raises ``CalledProcessError`` with the output.
    """
    command = ["ninja", "-v", *targets]
    printed: list[str] = []
    with subprocess.Popen(
        command,
        cwd=directory,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if not reader.take(line.rstrip("\n")) or not quiet:
                printed.append(line)
                sys.stdout.write(line)
                sys.stdout.flush()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, output="".join(printed))
    return "".join(printed)


def deliver(library: Path, descriptor: int) -> None:
    """Write the finished ``library`` to the builder's descriptor."""
    with library.open("rb") as source, open(descriptor, "wb") as target:
        shutil.copyfileobj(source, target)


def succeed(*, linked: bool = True, kernels: Sequence[str] = (), resources: Sequence[KernelResources] = ()) -> NoReturn:
    """End: everything that was asked for is compiled. ``linked``: and the library delivered.

    ``resources`` have the kernels' names as the assembler has them.
    """
    names = demangled([kernel.name for kernel in resources])
    named = [{**asdict(kernel), "name": short_name(name)} for kernel, name in zip(resources, names, strict=True)]
    _end(0, outcome="built", linked=linked, kernels=list(kernels), resources=named)


def fail(message: str = "", *, toolchain: bool = False) -> NoReturn:
    """End: the request cannot be built. ``message`` counts where the compiler has named no error.

    ``toolchain``: the fault is this machine's.
    """
    _end(1, outcome="failed", message=message, toolchain=toolchain)


def refuse(reason: str) -> NoReturn:
    """End: this recipe is not for this request, or did not get on with it. ``reason`` is one line."""
    _end(REFUSED, outcome="refused", message=" ".join(reason.split())[:_MAX_REASON])


def _end(status: int, **report: Any) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.write("\n" + json.dumps({**report, "directory": str(Path.cwd())}) + "\n")
    sys.stderr.flush()
    os._exit(status)
