"""Finding the problems of a KernelBench checkout, and reading them. Nothing is executed."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Final

from evaluator.errors import ProblemError
from evaluator.problems.problem import KernelBenchIdentity
from evaluator.problems.published import Published, Unusable, parse_published

__all__ = ["LEVELS", "find_files", "identify", "read_published"]

LEVELS: Final = (1, 2, 3, 4)

_FILE: Final = re.compile(r"(\d+)_(.+)")
_ID_CHARACTERS: Final = 100


def find_files(folder: Path, levels: Collection[int] = LEVELS) -> list[Path]:
    """Find ``<number>_<name>.py`` of each level, in the order of their numbers.

    ``folder``: a checkout, or its folder ``KernelBench``. Raises ``ProblemError`` where there is none.
    """
    for root in (folder / "KernelBench", folder):
        found = [
            path
            for level in sorted(levels)
            for path in sorted((root / f"level{level}").glob("*.py"), key=_number)
            if _FILE.fullmatch(path.stem)
        ]
        if found:
            return found
    wanted = ", ".join(f"level{level}" for level in sorted(levels))
    raise ProblemError(f"no KernelBench problem in {folder}: looked for KernelBench/{{{wanted}}}/<number>_<name>.py")


def identify(path: Path) -> tuple[str, KernelBenchIdentity]:
    """Return the id of the file's problem here, and its identity in KernelBench."""
    level = int(path.parent.name.removeprefix("level"))
    found = _FILE.fullmatch(path.stem)
    assert found is not None
    number = int(found[1])
    slug = re.sub(r"[^a-z0-9]+", "_", found[2].lower()).strip("_")
    problem_id = f"kernelbench_{level}_{number:03d}_{slug}"[:_ID_CHARACTERS].rstrip("_")
    return problem_id, KernelBenchIdentity(level, number, path.stem)


def read_published(path: Path) -> Published:
    """Read the problem in ``path``. Raises ``Unusable``."""
    try:
        data = path.read_bytes()
        source = data.decode().replace("\r\n", "\n")
    except OSError as error:
        raise Unusable(f"it cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise Unusable(f"it is not UTF-8 text: {error.reason} at byte {error.start}") from error
    return parse_published(source, " ".join(path.stem.partition("_")[2].replace("_", " ").split()))


def _number(path: Path) -> tuple[int, str]:
    digits = path.stem.partition("_")[0]
    return (int(digits) if digits.isdecimal() else 0), path.name
