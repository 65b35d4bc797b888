"""A program in the place of NVIDIA's tools, for machines without a GPU."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

__all__ = ["make_fake_tool"]

_TOOL: Final = """\
#!/bin/sh
# Takes the place of a sanitizer: writes what is in report.txt beside it, and starts the program.
arguments="$*"
while [ "$1" != "{python}" ]; do
  if [ "$1" = --log-file ]; then log="$2"; fi
  shift
done
cp "{folder}/report.txt" "$log"
echo "told: $arguments"
exec "$@"
"""


def make_fake_tool(folder: Path, report: str) -> str:
    """A program in ``folder``, made here, that reports ``report`` and starts the candidate; returns its path."""
    folder.mkdir()
    (folder / "report.txt").write_text(report)
    program = folder / "compute-sanitizer"
    program.write_text(_TOOL.replace("{python}", sys.executable).replace("{folder}", str(folder)))
    program.chmod(0o755)
    return str(program)
