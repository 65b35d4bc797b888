"""The heartbeat file of a webhook sender that runs as a separate process.

A module of its own, so that a health check loads nothing else.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

__all__ = ["HEARTBEAT"]

HEARTBEAT: Final = Path(tempfile.gettempdir()) / "kerneljudge-webhook-sender"
"""The file that the webhook sender touches whenever it has checked for due deliveries."""
