"""``python -m runtime.parent_death MODULE [ARGUMENT ...]``: run a module for as long as its supervisor lives.

The supervisor keeps the writing end of a pipe and names the reading end in the environment. When the
pipe ends, by whatever death of the supervisor, this process asks itself to stop, as SIGTERM would, and
ends the hard way if that takes too long.
"""

from __future__ import annotations

import logging
import os
import runpy
import signal
import sys
import threading
import time
from typing import Final

__all__ = ["PARENT_VARIABLE", "watch_parent"]

PARENT_VARIABLE: Final = "KERNELJUDGE_PARENT_FD"
_GRACE_S: Final = 15.0

_log = logging.getLogger(__name__)


def watch_parent() -> None:
    """Watch the pipe named in the environment, if there is one, from a thread of its own."""
    text = os.environ.pop(PARENT_VARIABLE, None)
    if text is None:
        return
    descriptor = int(text)
    os.set_inheritable(descriptor, False)
    threading.Thread(target=_watch, args=(descriptor,), name="parent-death watch", daemon=True).start()


def _watch(descriptor: int) -> None:
    while os.read(descriptor, 1):
        pass
    _log.warning("the supervisor is gone: stopping")
    os.kill(os.getpid(), signal.SIGTERM)
    # What the process below has checked already: a worker may finish what it is at.
    time.sleep(_GRACE_S + float(os.environ.get("KERNELJUDGE_DRAIN_S") or 0.0))
    os._exit(1)


if __name__ == "__main__":
    watch_parent()
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
