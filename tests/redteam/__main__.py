"""``make redteam``: every attack, every honest and every wrong candidate of the corpus, as a table by class.

Exit status 1 if an attack got through, an honest candidate was turned down or a wrong one passed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from evaluator.engine import Engine
from tests.corpus import ATTACKS, Case, known_problems, load_cases
from tests.redteam.grading import build_ahead, complaints_about


def main() -> int:
    parser = argparse.ArgumentParser(prog="make redteam", description=__doc__)
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--shard", type=_shard, default=(1, 1), help="K/N: every N-th case, from the K-th on")
    options = parser.parse_args()
    kind = options.device.partition(":")[0]
    shard, shards = options.shard
    cases = [case for case in load_cases() if case.runs_on(kind) and options.only in case.name][shard - 1 :: shards]
    tried: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    problems = known_problems()
    with tempfile.TemporaryDirectory() as folder, Engine(device=options.device, cache_dir=Path(folder)) as engine:
        build_ahead(cases, Path(folder), problems)
        for number, case in enumerate(cases, 1):
            begin = time.monotonic()
            complaints = complaints_about(case, engine, options.device, problems)
            tried[_row(case)] += 1
            failed[_row(case)] += bool(complaints)
            outcome = "NOT AS EXPECTED: " + "; ".join(complaints) if complaints else "as expected"
            print(f"[{number}/{len(cases)}] {case.name}: {outcome} ({time.monotonic() - begin:.1f} s)", file=sys.stderr)
    print(f"{'class':<42} {'tried':>6} {'failed':>7}")
    for row in [*(f"{name}: {words}" for name, words in ATTACKS.items()), "honest", "wrong"]:
        if tried[row]:
            print(f"{row:<42} {tried[row]:>6} {failed[row]:>7}")
    return 1 if failed.total() else 0


def _shard(text: str) -> tuple[int, int]:
    """``2/3`` as two numbers."""
    shard, _, shards = text.partition("/")
    if not (shard.isdecimal() and shards.isdecimal() and 1 <= int(shard) <= int(shards)):
        raise argparse.ArgumentTypeError(f"{text!r} is not K/N with K from 1 to N")
    return int(shard), int(shards)


def _row(case: Case) -> str:
    return case.kind if case.attack is None else f"{case.attack}: {ATTACKS[case.attack]}"


if __name__ == "__main__":
    sys.exit(main())
