"""``python -m tests.redteam.mutant CASE``: one case against the evaluator that PYTHONPATH leads to.

Prints what is not as the case expects it, as a JSON list.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from evaluator.engine import Engine
from tests.corpus import known_problems, load_case
from tests.redteam.grading import complaints_about


def main(name: str) -> None:
    with tempfile.TemporaryDirectory() as folder, Engine(device="cpu", cache_dir=Path(folder)) as engine:
        problems = known_problems()
        print(json.dumps(complaints_about(load_case(name), engine, "cpu", problems)))


if __name__ == "__main__":
    main(sys.argv[1])
