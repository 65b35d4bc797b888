"""The split recipe's process: ``python -m evaluator.builder.recipes.split FD``.

See ``evaluator.builder.recipes.workplace``. Every failure is refused: the plain recipe reports a mistake in the
sources, in nvcc's words.
"""

from __future__ import annotations

import sys
from typing import Any

from evaluator.builder.recipes.split.preparing import load_toolchain
from evaluator.builder.recipes.split.recipe import SplitResult, build
from evaluator.builder.recipes.workplace import Task, begin, deliver, refuse, succeed
from evaluator.builder.request import BuildRequest

__all__ = ["main"]


def main(library_fd: int) -> None:
    """Build once, or refuse."""
    task = begin()
    try:
        built = _build(task)
    except Exception as error:  # noqa: BLE001 - whatever it is, the next recipe may do better
        refuse(f"{type(error).__name__}: {error}")
    sys.stdout.write(built.log)
    if built.library is not None:
        deliver(built.library, library_fd)
    succeed(linked=built.library is not None, kernels=built.kernels, resources=built.resources)


def _build(task: Task) -> SplitResult:
    assert task.prepared is not None
    fields: dict[str, Any] = {name: value for name, value in task.request.items() if name != "uses_cuda"}
    toolchain = load_toolchain(task.prepared)
    return build(
        BuildRequest.restored(fields),
        toolchain,
        task.prepared,
        task.directory,
        line_information=task.line_information,
        link=toolchain.can_link,
    )


if __name__ == "__main__":
    main(int(sys.argv[1]))
