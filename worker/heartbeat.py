"""Where a webhook sender that is a process of its own shows that it is alive; apart, so that who looks loads nothing
else."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

__all__ = ["HEARTBEAT"]

HEARTBEAT: Final = Path(tempfile.gettempdir()) / "kerneljudge-webhook-sender"
"""Touched whenever the webhook sender has looked for what is due."""
