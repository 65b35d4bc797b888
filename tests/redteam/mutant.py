"""``python -m tests.redteam.mutant CASE``: one case against the evaluator that PYTHONPATH leads to.

Prints what is not as the case expects it, as a JSON list. Whether an attack gets through may depend on chance, and on a
busy machine figures are unsettled, so that one which is stopped is tried again.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Final

from evaluator.engine import Engine
from tests.corpus import known_problems, load_case
from tests.redteam.grading import complaints_about

_TRIES: Final = 20


def main(name: str) -> None:
    with tempfile.TemporaryDirectory() as folder, Engine(device="cpu", cache_dir=Path(folder)) as engine:
        case, problems = load_case(name), known_problems()
        found = (complaints_about(case, engine, "cpu", problems) for _ in range(_TRIES))
        print(json.dumps(next(filter(None, found), [])))


if __name__ == "__main__":
    main(sys.argv[1])
