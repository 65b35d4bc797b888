"""Cases of the corpus against the evaluator that the path of modules leads to."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from evaluator.engine import Engine
from tests.corpus import known_problems, load_case
from tests.redteam.grading import complaints_about

__all__ = ["main"]


def main(names: Sequence[str], *, tries: int, timed: bool, peak_rates: str) -> None:
    """Print what is not as the cases expect it, as a JSON list: of the first of ``tries`` rounds that has any.

    Not ``timed``: the verdicts tell, and a few timed calls are enough. ``peak_rates``: the folder of what is measured
    once for this machine.
    """
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder)
        (cache / "ceilings").symlink_to(peak_rates)
        with Engine(device="cpu", cache_dir=cache) as engine:
            cases, problems = [load_case(name) for name in names], known_problems()

            def complaints() -> list[str]:
                return [
                    f"{case.name}: {complaint}"
                    for case in cases
                    for complaint in complaints_about(case, engine, "cpu", problems, build=False, briefly=not timed)
                ]

            print(json.dumps(next(filter(None, (complaints() for _ in range(tries))), [])))
