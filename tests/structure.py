"""The sizes of packages and modules, and which package imports which: ``make structure``.

Arrows are imports between packages, by grimp, which import-linter uses. An arrow to a package below is as it should be;
``make check`` holds the layers.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import grimp

__all__ = ["MOST_CLASS_LINES", "MOST_LINES", "MOST_MODULES", "ROOT", "Module", "modules", "modules_by_package"]

ROOT: Final = Path(__file__).parent.parent
LAYERS: Final = ("api", "worker", "kerneljudge_server", "storage", "runtime", "evaluator", "kerneljudge")
"""The packages that are released, from the top."""
MOST_MODULES: Final = 16
"""In one package, beside its sub-packages; ``__init__.py`` and ``__main__.py`` are not counted."""
MOST_LINES: Final = 400
MOST_CLASS_LINES: Final = 300


@dataclass(frozen=True)
class Module:
    """One file of Python: ``name`` as it is imported, its lines, and those of its largest class (0 without one).

    ``public_classes`` are the names of those at its top level.
    """

    name: str
    lines: int
    class_lines: int
    public_classes: tuple[str, ...]

    @property
    def package(self) -> str:
        return self.name.rpartition(".")[0]


@cache
def modules() -> tuple[Module, ...]:
    """Every module of the packages that are released, but for migrations, which are written once."""
    return tuple(_modules())


def _modules() -> Iterator[Module]:
    for layer in LAYERS:
        for path in sorted((ROOT / layer).rglob("*.py")):
            if "migrations" in path.parts or ".build" in path.parts or path.name in ("__init__.py", "__main__.py"):
                continue
            source = path.read_text(encoding="utf-8")
            tree = ast.parse(source)
            classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
            yield Module(
                ".".join(path.relative_to(ROOT).with_suffix("").parts),
                len(source.splitlines()),
                max(((each.end_lineno or each.lineno) - each.lineno + 1 for each in classes), default=0),
                tuple(each.name for each in classes if each in tree.body and not each.name.startswith("_")),
            )


@cache
def syntax_of(module: str) -> ast.Module | None:
    """The syntax of one of our modules or packages, by its dotted name; ``None`` where there is none."""
    path = ROOT / module.replace(".", "/")
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        if file.is_file():
            return ast.parse(file.read_text(encoding="utf-8"))
    return None


def modules_by_package() -> Mapping[str, list[Module]]:
    """The modules of each package, by its name."""
    found: defaultdict[str, list[Module]] = defaultdict(list)
    for module in modules():
        found[module.package].append(module)
    return found


def arrows() -> Counter[tuple[str, str]]:
    """How many imports lead from one package to another."""
    packages = set(modules_by_package()) | set(LAYERS)
    graph = grimp.build_graph(*LAYERS)
    found: Counter[tuple[str, str]] = Counter()
    for importer in graph.modules:
        for imported in graph.find_modules_directly_imported_by(importer):
            ends = _package_of(importer, packages), _package_of(imported, packages)
            if ends[0] != ends[1]:
                found[ends] += 1
    return found


def _package_of(module: str, packages: set[str]) -> str:
    while module not in packages:
        module = module.rpartition(".")[0]
    return module


def main() -> int:
    by_package, between = modules_by_package(), arrows()
    print(f"{'package':<34}{'modules':>8}{'lines':>8}   imports")
    for package in sorted(by_package, key=lambda name: (LAYERS.index(name.partition(".")[0]), name)):
        held = by_package[package]
        targets = ", ".join(f"{end} {count}" for (begin, end), count in sorted(between.items()) if begin == package)
        print(f"{package:<34}{len(held):>8}{sum(module.lines for module in held):>8}   {targets}")
    print(f"\n{sum(map(len, by_package.values()))} modules, {len(between)} arrows between {len(by_package)} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
