"""Start the service, hand in ten candidates over HTTP, and show their verdicts and the leaderboards.

``python -m demo.run`` serves until Ctrl-C. With ``CI=true`` it checks every verdict, stops the service, and makes sure
that no process is left. It then exits with 0, or with 1 and the reasons.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from demo.processes import adopt_orphans, descendants
from demo.service import DemoFailed, running_service
from kerneljudge.cli import render
from kerneljudge.client import Client
from kerneljudge.records import SubmissionRecord
from tests.corpus import Case, load_case

__all__ = ["main"]

CANDIDATES: Final = (
    "relu_honest_plain",
    "linear_honest_plain",
    "relu_leaky",
    "linear_no_bias",
    "relu_wrong_gradient",
    "linear_wrong_gradient",
    "relu_honest_cpp",
    "linear_honest_cpp",
    "relu_compile_error_cpp",
    "linear_compile_error_cpp",
)

_AUTHOR: Final = "demo"
_GRADED_S: Final = 900.0


@dataclass(frozen=True)
class Graded:
    """A candidate, its final record, and the time from its POST to that record."""

    case: Case
    record: SubmissionRecord
    seconds: float

    @property
    def as_expected(self) -> bool:
        same_gradients = self.case.gradients is None or self.record["gradients"] == self.case.gradients
        return self.record["verdict"] == self.case.verdict and same_gradients


def main() -> int:
    """Run the demonstration. Return the exit status."""
    checking = os.environ.get("CI", "").lower() in ("1", "true", "yes")
    signal.signal(signal.SIGTERM, _interrupt)
    adopt_orphans()
    try:
        with (
            tempfile.TemporaryDirectory(prefix="kerneljudge-demo-") as folder,
            running_service(Path(folder), devices="cpu") as (url, process),
        ):
            graded = _grade_all(url)
            problems = sorted({each.case.problem for each in graded})
            _show_boards(url, problems)
            if checking:
                _check(url, graded, problems)
            else:
                print(f"\nThe leaderboards are at {url}. Ctrl-C stops the service.")
                process.wait()
        _check_nothing_left()
    except DemoFailed as failure:
        print(f"\nThe demonstration failed: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped.")
        return 0
    if checking:
        print("\nEvery verdict is as expected, the service stopped, and no process is left.")
    return 0


def _interrupt(_signal: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _grade_all(url: str) -> list[Graded]:
    """POST every candidate, and print each verdict as it arrives."""
    cases = [load_case(name) for name in CANDIDATES]
    print(f"\nPOST {url}/api/v1/submissions: {len(cases)} candidates\n")
    print(
        f"{'POST to verdict':>15}  {'candidate':<26}{'verdict':<16}{'gradients':<14}{'speedup':<9}message", flush=True
    )
    graded: list[Graded] = []
    with ThreadPoolExecutor(len(cases)) as pool:
        for future in as_completed([pool.submit(_grade, url, case) for case in cases]):
            each = future.result()
            print(_line(each), flush=True)
            graded.append(each)
    return graded


def _grade(url: str, case: Case) -> Graded:
    begin = time.monotonic()
    with Client(url) as client:
        posted = client.submit(
            case.problem, code=case.source, device="cpu", size=case.size, label=case.name, author=_AUTHOR
        )
        assert posted["id"] is not None
        try:
            record = client.wait(posted["id"], timeout_s=_GRADED_S)
        except TimeoutError as error:
            raise DemoFailed(f"{case.name}: {error}") from error
    return Graded(case, record, time.monotonic() - begin)


def _line(graded: Graded) -> str:
    record = graded.record
    verdict = record["verdict"] or record["status"]
    speedup = "" if record["speedup"] is None else f"{record['speedup']:.2f}x"
    message = render.plain(record["message"]).partition("\n")[0]
    return (
        f"{graded.seconds:>13.1f} s  {graded.case.name:<26}{verdict:<16}{record['gradients'] or '':<14}"
        f"{speedup:<9}{message[:120]}"
    )


def _show_boards(url: str, problems: list[str]) -> None:
    with Client(url) as client:
        for problem in problems:
            print()
            render.write(render.leaderboard(client.leaderboard(problem, device="cpu", size="smoke")))


def _check(url: str, graded: list[Graded], problems: list[str]) -> None:
    """Raise ``DemoFailed`` unless every verdict is as expected and exactly the passed candidates are ranked."""
    wrong = [each for each in graded if not each.as_expected]
    if wrong:
        raise DemoFailed("; ".join(_complaint(each) for each in wrong))
    passed = {each.record["id"] for each in graded if each.record["verdict"] == "passed"}
    with Client(url) as client:
        boards = [client.leaderboard(problem, device="cpu", size="smoke") for problem in problems]
    ranked = {entry["submission"] for board in boards for entry in board["entries"]}
    if ranked != passed:
        raise DemoFailed(f"ranked are {sorted(ranked)}, and {sorted(filter(None, passed))} passed")


def _complaint(graded: Graded) -> str:
    case, record = graded.case, graded.record
    wanted = f"{case.verdict}" + (f", gradients {case.gradients}" if case.gradients else "")
    got = f"{record['verdict'] or record['status']}, gradients {record['gradients']} ({record['message']})"
    return f"{case.name}: expected {wanted}, got {got}"


def _check_nothing_left() -> None:
    left = descendants()
    if left:
        raise DemoFailed("processes are left: " + "; ".join(f"{pid} {command}" for pid, command in left))


if __name__ == "__main__":
    sys.exit(main())
