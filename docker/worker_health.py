"""Health check of a worker's container: 0 if all that it is there for has been heard of lately."""

from __future__ import annotations

import socket
import sys

from runtime.settings import Settings
from storage.database import create_engine_for, session_factory
from storage.queue.workers import list_workers


def main() -> int:
    """Look for workers whose name begins with this host's: for each of their devices one has to be alive."""
    engine = create_engine_for(Settings())
    try:
        with session_factory(engine, read_only=True)() as session:
            prefix = f"{socket.gethostname()}-"
            here = [worker for worker in list_workers(session) if worker.id.startswith(prefix)]
        # One that has died is still known for a while, beside the one that has taken its place.
        alive = {(worker.kind, worker.device) for worker in here if worker.alive}
        return 0 if here and alive == {(worker.kind, worker.device) for worker in here} else 1
    finally:
        engine.dispose()


if __name__ == "__main__":
    sys.exit(main())
