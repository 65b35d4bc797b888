"""``python -m tests.evaluator.talkative_child FD``: reports, prints and dies as it is told over the socket."""

from __future__ import annotations

import contextlib
import socket
import sys

from evaluator import logs
from evaluator.protocol import messages

if __name__ == "__main__":
    supervisor = socket.socket(fileno=int(sys.argv[1]))
    with contextlib.suppress(messages.ConnectionClosed):
        while True:
            message, _ = messages.receive(supervisor)
            if message["op"] == "report":
                try:
                    raise ZeroDivisionError(message["text"])
                except ZeroDivisionError:
                    logs.report("child.module", "it failed", message["number"])
            else:
                print(message["text"], file=sys.stderr, flush=True)
            messages.send(supervisor, {})
