"""``python -m tests.worker.scripted_worker QUEUE``: a real worker process with the scripted engine."""

from __future__ import annotations

import logging
import sys

from storage.settings import Settings
from tests.worker.engines import ScriptedEngine
from worker.process import Role, run_worker

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    settings, role = Settings(), Role(queue=sys.argv[1])
    sys.exit(run_worker(settings, role, lambda *_: ScriptedEngine(settings.data_dir / "journal")))
