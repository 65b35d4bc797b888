"""Health check of the webhook sender's container: 0 if it has looked for due webhooks within the last minutes."""

from __future__ import annotations

import sys
import time
from typing import Final

from worker.heartbeat import HEARTBEAT

_SILENT_S: Final = 120.0
"""More than the time that unresponsive receivers can take, and than a short outage of the database."""


def main() -> int:
    """Check the age of the file that the sender touches. Return the exit status."""
    try:
        return 0 if time.time() - HEARTBEAT.stat().st_mtime < _SILENT_S else 1
    except OSError:
        return 1


if __name__ == "__main__":
    sys.exit(main())
