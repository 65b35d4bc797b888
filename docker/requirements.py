"""Print what an image installs: the project's own dependencies, without those named as arguments, and what traces need.

Their versions come from requirements.lock, given to pip as constraints. Python only, nothing installed.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path


def main(without: list[str]) -> int:
    """One requirement a line."""
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
    for requirement in (*project["dependencies"], *project["optional-dependencies"]["tracing"]):
        if re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0] not in without:
            print(requirement)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
