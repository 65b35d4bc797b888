"""``make redteam``: every attack, every honest and every wrong candidate of the corpus, as a table by class.

Exit status 1 if an attack got through, an honest candidate was turned down or a wrong one passed. A verdict that
depends on the inputs that are drawn shows in repetitions (``--kind honest --repetitions 20 --untimed``).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from evaluator.engine import Engine
from tests.corpus import ATTACKS, KINDS, Case, known_problems, load_cases
from tests.redteam.grading import build_ahead, complaints_about


def main() -> int:
    parser = argparse.ArgumentParser(prog="make redteam", description=__doc__)
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--kind", choices=KINDS, help="cases of this kind alone")
    parser.add_argument(
        "--repetitions", type=_count, default=1, help="how often each case is tried, each time with new inputs"
    )
    parser.add_argument("--untimed", action="store_true", help="no figures where a case is not about them")
    parser.add_argument("--shard", type=_shard, default=(1, 1), help="K/N: every N-th case, from the K-th on")
    options = parser.parse_args()
    kind = options.device.partition(":")[0]
    shard, shards = options.shard
    wanted = (case for case in load_cases() if case.runs_on(kind) and options.kind in (None, case.kind))
    cases = [case for case in wanted if options.only in case.name][shard - 1 :: shards]
    rounds = [case for _ in range(options.repetitions) for case in cases]
    tried: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    by_case: Counter[str] = Counter()
    problems = known_problems()
    with tempfile.TemporaryDirectory() as folder, Engine(device=options.device, cache_dir=Path(folder)) as engine:
        build_ahead(cases, Path(folder), problems)
        for number, case in enumerate(rounds, 1):
            begin = time.monotonic()
            complaints = complaints_about(case, engine, options.device, problems, timed=not options.untimed)
            tried[_row(case)] += 1
            failed[_row(case)] += bool(complaints)
            by_case[case.name] += bool(complaints)
            outcome = "NOT AS EXPECTED: " + "; ".join(complaints) if complaints else "as expected"
            print(
                f"[{number}/{len(rounds)}] {case.name}: {outcome} ({time.monotonic() - begin:.1f} s)", file=sys.stderr
            )
    print(f"{'class':<42} {'tried':>6} {'failed':>7}")
    for row in [*(f"{name}: {words}" for name, words in ATTACKS.items()), "honest", "wrong"]:
        if tried[row]:
            print(f"{row:<42} {tried[row]:>6} {failed[row]:>7}")
    for name, times in by_case.most_common():
        if times:
            print(f"{name}: {times} of {options.repetitions} not as expected")
    return 1 if failed.total() else 0


def _shard(text: str) -> tuple[int, int]:
    """``2/3`` as two numbers."""
    shard, _, shards = text.partition("/")
    if not (shard.isdecimal() and shards.isdecimal() and 1 <= int(shard) <= int(shards)):
        raise argparse.ArgumentTypeError(f"{text!r} is not K/N with K from 1 to N")
    return int(shard), int(shards)


def _count(text: str) -> int:
    """A whole number from 1 on."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def _row(case: Case) -> str:
    return case.kind if case.attack is None else f"{case.attack}: {ATTACKS[case.attack]}"


if __name__ == "__main__":
    sys.exit(main())
