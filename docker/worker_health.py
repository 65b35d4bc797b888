"""Health check of a worker's container: 0 if a worker of this host has been heard of lately."""

from __future__ import annotations

import socket
import sys

from storage.database import create_engine_for, session_factory
from storage.settings import Settings
from storage.workers import list_workers


def main() -> int:
    """Look for a living worker whose name begins with this host's."""
    engine = create_engine_for(Settings())
    try:
        with session_factory(engine, read_only=True)() as session:
            prefix = f"{socket.gethostname()}-"
            return 0 if any(worker.alive and worker.id.startswith(prefix) for worker in list_workers(session)) else 1
    finally:
        engine.dispose()


if __name__ == "__main__":
    sys.exit(main())
