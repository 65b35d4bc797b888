"""Health check of a worker's container: 0 if all of its workers have a recent heartbeat."""

from __future__ import annotations

import socket
import sys

from runtime.settings import Settings
from storage.database import create_engine_for, session_factory
from storage.queue.workers import list_workers


def main() -> int:
    """Check the workers whose name begins with this host's name. For each of their devices, one has to be alive."""
    engine = create_engine_for(Settings())
    try:
        with session_factory(engine, read_only=True)() as session:
            prefix = f"{socket.gethostname()}-"
            here = [worker for worker in list_workers(session) if worker.id.startswith(prefix)]
        # A worker that has died is still listed for a while, beside the one that has taken its place.
        alive = {(worker.kind, worker.device) for worker in here if worker.alive}
        return 0 if here and alive == {(worker.kind, worker.device) for worker in here} else 1
    finally:
        engine.dispose()


if __name__ == "__main__":
    sys.exit(main())
