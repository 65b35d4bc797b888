"""``python -m runtime.parent_death MODULE [ARGUMENT ...]``: run a module for as long as its supervisor lives.

The supervisor keeps the writing end of a pipe and names the reading end in the environment. The pipe ends with the
supervisor, however that dies. This process then sends itself SIGTERM, and exits at once if stopping takes too long.
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
    """Watch the pipe named in the environment, if there is one, from a separate thread."""
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
    # The setting was checked by the process itself: a worker may finish its submission within that time.
    time.sleep(_GRACE_S + float(os.environ.get("KERNELJUDGE_DRAIN_S") or 0.0))
    os._exit(1)


if __name__ == "__main__":
    watch_parent()
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
