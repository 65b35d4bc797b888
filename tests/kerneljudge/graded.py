"""A service that grades: a real web server, and real worker processes whose verdicts the candidates' sources say."""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from api.app import create_app
from runtime.settings import Settings
from tests.api.conftest import PROBLEMS, LiveServer

PASSED = 0.3 + math.log(2.0)
"""The default reward for a speedup of 2, which is what the scripted worker measures."""

_ROOT = Path(__file__).parents[2]


def source(step: str = "", marker: str = "") -> str:
    """A candidate that does what ``step`` says (``tests.worker.engines``)."""
    return f"# {step}\n# {marker}\nclass ModelNew: ...\n"


def answer(step: str = "", marker: str = "") -> str:
    """A model's answer with such a candidate in it."""
    return f"<think>Hm.</think>Here it is:\n```python\n{source(step, marker)}```\n"


@contextlib.contextmanager
def graded_service(folder: Path) -> Iterator[LiveServer]:
    """The service, with a worker that builds and one that evaluates on ``cpu``."""
    settings = Settings(data_dir=folder / "data", problems_dir=PROBLEMS, port=0, request_references=True)
    live = LiveServer(create_app(settings), settings)
    live.start()
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("KERNELJUDGE_")},
        "KERNELJUDGE_DATA_DIR": str(settings.data_dir),
        "KERNELJUDGE_PROBLEMS_DIR": str(PROBLEMS),
    }
    with (folder / "workers.log").open("w") as log:
        workers = [
            subprocess.Popen(
                [sys.executable, "-m", "tests.worker.scripted_worker", queue],
                cwd=_ROOT,
                env=environment,
                stdout=log,
                stderr=log,
            )
            for queue in ("build", "evaluate.cpu")
        ]
        try:
            yield live
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
            live.stop()
