"""Health check of the webhook sender's container: 0 if it has looked for what is due within the last minutes."""

from __future__ import annotations

import sys
import time
from typing import Final

from worker.heartbeat import HEARTBEAT

_SILENT_S: Final = 120.0
"""More than receivers that do not answer can take, and than a database may be away for a moment."""


def main() -> int:
    """Look at the file that it touches."""
    try:
        return 0 if time.time() - HEARTBEAT.stat().st_mtime < _SILENT_S else 1
    except OSError:
        return 1


if __name__ == "__main__":
    sys.exit(main())
