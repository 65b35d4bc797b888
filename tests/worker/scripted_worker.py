"""``python -m tests.worker.scripted_worker QUEUE``: a real worker process with the scripted engine.

That which evaluates on CUDA has the tools of ``compute-sanitizer``, and not ``ncu``.
"""

from __future__ import annotations

import sys

from evaluator import logs
from kerneljudge.terms.findings import Tool
from runtime.settings import Settings
from tests.worker.engines import ScriptedEngine
from worker.process import Role, run_worker

if __name__ == "__main__":
    settings, role = Settings(), Role(queue=sys.argv[1])
    logs.configure(settings.log_format, settings.log_level)
    tools = [tool for tool in Tool if tool is not Tool.COUNTERS] if role.queue == "evaluate.cuda" else []
    sys.exit(run_worker(settings, role, lambda *_: ScriptedEngine(settings.data_dir / "journal", tools)))
