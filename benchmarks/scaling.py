"""Evaluations a minute with one device and with more: ``python -m benchmarks.scaling --devices 8,4,2,1``.

For each number of devices, the service is started on that many, with one data folder for all. It grades distinct honest
candidates, ``--each`` for every device. Before that, everything is built, by a batch that does not count.

For each number, it prints the rate, the rate for each device, and its share of that of the smallest number. It also
prints the share of the time in which the devices were evaluating. The exit status is 1 where a candidate does not pass.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from benchmarks.candidates import make_candidates
from benchmarks.throughput import Pass, grade
from demo.service import running_service
from kerneljudge.client import Client

__all__ = ["main"]


def main(argv: list[str] | None = None) -> int:
    """Grade with each number of devices. Return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scaling",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--devices", default="4,2,1", help="how many, one after the other; on a CPU 1 alone")
    parser.add_argument("--size", choices=("full", "smoke"), help="default: full on cuda, smoke on cpu")
    parser.add_argument("--each", type=int, default=16, help="candidates for each device")
    parser.add_argument("--seed", type=int, default=1, help="which variants are made")
    options = parser.parse_args(argv)
    numbers = sorted({int(number) for number in options.devices.split(",")}, reverse=True)
    size = options.size or ("full" if options.device == "cuda" else "smoke")
    made = make_candidates(options.device, options.each * numbers[0], options.seed)
    found: dict[int, Pass] = {}
    with tempfile.TemporaryDirectory(prefix="kerneljudge-scaling-") as folder:
        for number in numbers:
            devices = ",".join(f"cuda:{index}" for index in range(number)) if options.device == "cuda" else "cpu"
            with (
                running_service(Path(folder), devices=devices, measured=True) as (url, _process),
                Client(url) as client,
            ):
                if number == numbers[0]:
                    first = grade(client, made, options.device, size, "first")
                    print(f"built, {number} devices: {first.per_minute:.1f} a minute", flush=True)
                found[number] = grade(client, made[: options.each * number], options.device, size, f"on_{number}")
                print(f"{number} devices: {found[number].per_minute:.1f} a minute", flush=True)
    least = numbers[-1]
    print(f"\n{'devices':>8}{'candidates':>12}{'seconds':>10}{'a minute':>10}{'each':>8}{'of linear':>11}{'busy':>8}")
    for number in reversed(numbers):
        one = found[number]
        each = one.per_minute / number
        share = each / (found[least].per_minute / least)
        print(
            f"{number:>8}{len(one.graded):>12}{one.seconds:>10.1f}{one.per_minute:>10.1f}{each:>8.1f}"
            f"{share:>11.2f}{100 * one.busy_share:>7.1f}%"
        )
    failed = [each for one in (first, *found.values()) for each in one.graded if not each.passed]
    for each_failed in failed:
        record = each_failed.record
        print(f"NOT PASSED: {record['label']}: {record['verdict'] or record['status']}\n    {record['message']}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
