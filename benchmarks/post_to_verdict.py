"""From POST to verdict, through the running service: ``python -m benchmarks.post_to_verdict --device cuda``.

It starts the service with a data folder of its own. It hands in the named candidates of the corpus one after the other,
in a new order each round. It prints each result, its time, and the seconds by stage. The first round builds each
extension. In later rounds the source is the same but for the extension's name, and is found in the cache.

With ``--plain``, each candidate is also graded once in the plain way (see ``benchmarks.plain_way``), between two
rounds. It then has an interpreter and an extension folder of its own. The last lines have the times of the first round
and of the later ones (their median), and the ratios. The exit status is 1 where a verdict is not the expected one.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from benchmarks.graded_plainly import grade_plainly
from benchmarks.throughput import usual_devices
from demo.service import running_service
from evaluator.problems.loading import load_problems
from kerneljudge.client import Client
from kerneljudge.records import SubmissionRecord
from tests.corpus import Case, load_cases

_GRADED_S = 900.0
_PROBLEMS = Path(__file__).parent.parent / "reference_models"
_EXTENSION_NAME = re.compile(r"""(\bname\s*=\s*["'])(\w+)""")


@dataclass(frozen=True)
class Row:
    """One candidate in one round."""

    round: int
    case: Case
    record: SubmissionRecord
    seconds: float

    @property
    def as_expected(self) -> bool:
        case, record = self.case, self.record
        said = " ".join((record["message"], *record["hints"]))
        return (
            record["verdict"] == case.verdict
            and (case.gradients is None or record["gradients"] == case.gradients)
            and all(part in said for part in case.message_contains)
        )


def main() -> int:
    arguments = _arguments()
    cases = _cases(arguments.device, arguments.cases, arguments.size)
    devices = arguments.serve_devices or usual_devices(arguments.device)
    shuffle = random.Random(arguments.seed)  # noqa: S311 - an order to repeat, no secret
    rows: list[Row] = []
    plain_s: dict[str, float] = {}
    with (
        tempfile.TemporaryDirectory(prefix="kerneljudge-benchmark-") as folder,
        running_service(Path(folder), devices=devices, measured=True) as (url, _process),
        Client(url) as client,
    ):
        print(_HEADER, flush=True)
        for number in range(1, arguments.rounds + 1):
            shuffle.shuffle(cases)
            for case in cases:
                row = _grade(client, case, arguments.device, number)
                rows.append(row)
                print(_line(row), _stages(row.record), sep="\n", flush=True)
            if arguments.plain and not plain_s:
                # The service is idle meanwhile, so that neither disturbs the other.
                plain_s = _grade_plainly(cases, devices.partition(",")[0])
    return _conclude(rows, plain_s)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--serve-devices", help="devices that the service gets, such as cuda:0")
    parser.add_argument("--size", help="of the problems; default: as each case has it")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plain", action="store_true", help="grade each the plain way as well, and print ratios")
    parser.add_argument("cases", nargs="*", help="names of cases; default: every case for this very device")
    return parser.parse_args()


def _cases(device: str, names: list[str], size: str | None) -> list[Case]:
    served = load_problems(_PROBLEMS)
    chosen = [case for case in load_cases() if case.problem in served]
    cases = [case for case in chosen if (case.name in names if names else case.device == device)]
    unknown = set(names) - {case.name for case in cases}
    if unknown:
        sys.exit(f"no such case: {', '.join(sorted(unknown))}")
    return cases if size is None else [replace(case, size=size) for case in cases]


def _grade(client: Client, case: Case, device: str, number: int) -> Row:
    source = case.source if number == 1 else _EXTENSION_NAME.sub(rf"\g<1>\g<2>_{number}", case.source)
    begin = time.monotonic()
    posted = client.submit(case.problem, code=source, device=device, size=case.size, label=case.name)
    assert posted["id"] is not None
    record = client.wait(posted["id"], timeout_s=_GRADED_S)
    return Row(number, case, record, time.monotonic() - begin)


def _grade_plainly(cases: list[Case], device: str) -> dict[str, float]:
    """Return the seconds from the start of an interpreter to its figures, for each case.

    Cases without figures are left out.
    """
    problems = load_problems(_PROBLEMS)
    seconds: dict[str, float] = {}
    for case in cases:
        grade = grade_plainly(case, problems[case.problem], device, case.size)
        if grade is None:
            print(f"plain         {case.name:<28}    no figures")
        else:
            seconds[case.name] = grade.seconds
            said = "correct" if grade.correct else "wrong"
            stages = ", ".join(f"{stage} {took:.1f} s" for stage, took in grade.stage_s.items())
            print(
                f"plain {grade.seconds:>7.2f}  {case.name:<32}{said:<15}{grade.speedup:.4f}  {stages}",
                flush=True,
            )
    return seconds


_HEADER = (
    f"{'round':>5} {'s':>7}  {'candidate':<28}{'':<4}{'verdict':<15}{'gradients':<12}{'speedup [95 %]':<26}"
    f"{'training':<10}{'ms':>9} {'base ms':>9} {'GiB':>6}  message"
)


def _line(row: Row) -> str:
    record = row.record
    latency, peak = record["latency_ms"], record["peak_memory_bytes"]
    interval = record["speedup_interval"]
    speedup = "" if record["speedup"] is None else f"{record['speedup']:.4f}"
    if interval is not None:
        speedup += f" [{interval['low']:.4f}, {interval['high']:.4f}]"
    training = "" if record["speedup_training"] is None else f"{record['speedup_training']:.4f}"
    return (
        f"{row.round:>5} {row.seconds:>7.2f}  {row.case.name:<28}{'ok' if row.as_expected else 'NOT':<4}"
        f"{record['verdict'] or record['status']:<15}{record['gradients'] or '':<12}{speedup:<26}{training:<10}"
        f"{'' if latency is None else format(latency['candidate'], '.4f'):>9} "
        f"{'' if latency is None else format(latency['baseline'], '.4f'):>9} "
        f"{'' if peak is None else format(peak / 2**30, '.1f'):>6}  {record['message'].partition(chr(10))[0][:100]}"
    )


def _stages(record: SubmissionRecord) -> str:
    """Return the seconds by stage. The rest of the time from POST to verdict is spent in queues and in notification."""
    return " " * 15 + ", ".join(f"{stage} {took:.2f}" for stage, took in record["stage_s"].items())


def _conclude(rows: list[Row], plain_s: dict[str, float]) -> int:
    wrong = [row for row in rows if not row.as_expected]
    print(f"\n{len(rows) - len(wrong)} of {len(rows)} as expected")
    if any(row.round > 1 for row in rows):
        print(f"\n{'from POST to verdict':<32}{'building':>10}{'cached':>10}{'least':>10}{'ratio':>10}")
        for name in sorted({row.case.name for row in rows}):
            first, *later = [row.seconds for row in rows if row.case.name == name]
            print(f"{name:<32}{first:>8.2f} s{median(later):>8.2f} s{min(later):>8.2f} s{first / median(later):>9.1f}x")
    for name, took in sorted(plain_s.items()):
        ours = [row.seconds for row in rows if row.case.name == name]
        ratios = ", then ".join(f"{took / seconds:.1f}x" for seconds in ours)
        print(f"{name}: the plain way takes {took:.1f} s, which is {ratios} of ours")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
