"""Sources to build, each with what must become of it: ``tests/build_corpus/<name>.cu``.

The first lines of a file say how it is built: ``//: <key>: <value>``. ``expect`` is ``fast`` (the split recipe builds
it), ``refused: <reason>`` (it is left to the plain recipe) or ``error`` (no recipe builds it). ``functions`` is a list,
or ``none`` where the source has its own module; ``cpp``, ``cflags``, ``cuda_flags`` and ``error_handling`` are the
arguments of ``load_inline``; ``needs`` is a header that not every toolkit has. ``//: next`` begins another source.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from evaluator.builder.request import BuildRequest

__all__ = ["BUILD_CORPUS", "BuildSource", "load_build_source", "load_build_sources"]

BUILD_CORPUS = Path(__file__).parent / "build_corpus"
_OUTCOMES = ("fast", "refused", "error")
_KEYS = {"expect", "functions", "cpp", "cflags", "cuda_flags", "error_handling", "needs"}


@dataclass(frozen=True)
class BuildSource:
    """``reason``: what the refusal says, where ``outcome`` is ``refused``."""

    name: str
    outcome: str
    reason: str
    needs: str
    request: BuildRequest


def load_build_sources() -> list[BuildSource]:
    """Every source, by name."""
    return [load_build_source(path.stem) for path in sorted(BUILD_CORPUS.glob("*.cu"))]


def load_build_source(name: str) -> BuildSource:
    """One source. Raises ``ValueError`` for a key that is unknown, missing or wrong."""
    text = (BUILD_CORPUS / f"{name}.cu").read_bytes().decode("utf-8")
    says: dict[str, str] = {}
    lines = text.split("\n")
    while lines and lines[0].startswith("//: "):
        key, _, value = lines.pop(0).removeprefix("//: ").strip().partition(":")
        says[key] = value.strip()
    unknown = set(says) - _KEYS
    if unknown:
        raise ValueError(f"{name}: unknown key {min(unknown)!r}")
    outcome, _, reason = says["expect"].partition(": ")
    if outcome not in _OUTCOMES or (outcome == "refused") != bool(reason):
        raise ValueError(f"{name}: what is expected is {says['expect']!r}")
    functions = says["functions"]
    return BuildSource(
        name,
        outcome,
        reason,
        says.get("needs", ""),
        BuildRequest.parse(
            {
                "name": name,
                "cpp_sources": [says.get("cpp", "")],
                "cuda_sources": "\n".join(lines).split("//: next\n"),
                "functions": None if functions == "none" else functions.split(", "),
                "extra_cflags": says.get("cflags", "").split(),
                "extra_cuda_cflags": says.get("cuda_flags", "").split(),
                "with_pytorch_error_handling": says.get("error_handling", "yes") == "yes",
            }
        ),
    )
