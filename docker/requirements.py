"""Print the requirements of an image: the project's dependencies and those of traces, without those named as arguments.

``--with EXTRA`` adds those of an extra. Their versions come from requirements.lock, which pip gets as constraints. It
needs Python alone, without any installed package.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from pathlib import Path


def main() -> int:
    """Print one requirement a line. Return the exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("without", nargs="*")
    parser.add_argument("--with", action="append", default=[], dest="extras", metavar="EXTRA")
    given = parser.parse_args()
    root = Path(__file__).parent.parent
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    needed = [line for line in (root / "requirements.in").read_text().splitlines() if not line.startswith("#")]
    for requirement in (*needed, *extras["tracing"]):
        if re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0] not in given.without:
            print(requirement)
    for extra in given.extras:
        print("\n".join(extras[extra]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
