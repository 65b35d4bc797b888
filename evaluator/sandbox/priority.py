"""Processor priority: giving way to evaluations, and finding processes that had no processor. Torch-free.

Builds, and the imports that find extensions, run beside evaluations, whose runners need a processor at the moment of
their wake-up. On an H200 with 16 cores, 16 compilers of the same priority made evaluations take two to sixteen times as
long. An identical candidate came to a speedup of 0.42.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Final

__all__ = ["lower_priority", "lower_priority_of", "was_starved"]

_LEAST_URGENT: Final = 19
_ASK_AGAIN_S: Final = 0.1
"""Linux changes the priority of a session no more often than that, unless an administrator does."""
_ASKED: Final = 50
_HAD_SHARE: Final = 0.25
_WAITED_SHARE: Final = 0.5


def lower_priority() -> None:
    """Give this process and its children the lowest priority for processors.

    To be called in a session of its own, which gives way as a whole.
    """
    os.nice(_LEAST_URGENT)
    # Where the kernel first divides the processors between sessions, only this counts.
    for _ in range(_ASKED):
        try:
            Path("/proc/self/autogroup").write_text(str(_LEAST_URGENT))
        except BlockingIOError:
            time.sleep(_ASK_AGAIN_S)
        except OSError:
            return
        else:
            return


def lower_priority_of(session: int) -> None:
    """Make the session of another process give way, by the process's number.

    To be called from outside of its namespaces, where an administrator need not wait. Where the caller would have to
    wait, the process gives way within its session alone. Eight imports that waited for each other took nine times as
    long then.
    """
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, session, _LEAST_URGENT)
    with contextlib.suppress(OSError):
        Path(f"/proc/{session}/autogroup").write_text(str(_LEAST_URGENT))


def was_starved(session: int, elapsed_s: float) -> bool:
    """Whether the processes of ``session`` wanted a processor most of the time and had one for little of it.

    The session began ``elapsed_s`` seconds ago. True means that the machine did other work. Processes that only wait
    for each other have had the processors.
    """
    had_s = waited_s = 0.0
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            fields = (process / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                # Its own time, and the time of the children that it has waited for.
                had_s += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
                waited_s += int((process / "schedstat").read_text().split()[1]) / 1e9
    return had_s < _HAD_SHARE * elapsed_s and waited_s > _WAITED_SHARE * elapsed_s
