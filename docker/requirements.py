"""Print what an image installs: the project's own dependencies, without those named as arguments, and what traces need.

``--with EXTRA`` adds those of an extra. Their versions come from requirements.lock, given to pip as constraints. Python
only, nothing installed.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from pathlib import Path


def main() -> int:
    """One requirement a line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("without", nargs="*")
    parser.add_argument("--with", action="append", default=[], dest="extras", metavar="EXTRA")
    given = parser.parse_args()
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
    for requirement in (*project["dependencies"], *project["optional-dependencies"]["tracing"]):
        if re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0] not in given.without:
            print(requirement)
    for extra in given.extras:
        print("\n".join(project["optional-dependencies"][extra]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
