"""``kerneljudge-server``: the processes of a distributed service, and every command of ``kerneljudge``."""

from __future__ import annotations

import runpy
import sys
from typing import Final

__all__ = ["main"]

_PROCESSES: Final = {
    "api": "api",
    "worker": "worker",
    "migrate": "storage.migrate",
    "webhook-sender": "worker.webhook_sender",
}


def main() -> None:
    """Run the process that the first argument names, or else the command ``kerneljudge``."""
    module = _PROCESSES.get(sys.argv[1]) if len(sys.argv) > 1 else None
    if module is None:
        from kerneljudge.cli.app import main as run  # noqa: PLC0415 - a process needs no command line

        run()
        return
    sys.argv = [module, *sys.argv[2:]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
