"""The files that this version of torch writes for a C++ extension, without torch: ``main.cpp`` and ``build.ninja``.

``evaluator.builder.recipes.template`` has torch write both for an extension made of marks. Here the marks are replaced
by the parts of a request. So flags, paths and the text of ``main.cpp`` are torch's own, whatever its version.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

__all__ = ["MARKS", "Marks", "TorchCommands"]


@dataclass(frozen=True)
class Marks:
    """The marks that stand in a template for the parts of a request. None is part of another."""

    name: str = "kj_mark_name"
    text: str = "kj_mark_text"
    function: str = "kj_mark_function"
    docstring: str = "kj_mark_docstring"
    cflag: str = "-DKJ_MARK_CFLAG"
    ldflag: str = "-lkj_mark_ldflag"
    include: str = "/kj_mark_include"
    directory: str = "/kj_mark_directory"
    source: str = "kj_mark_source.cpp"
    object: str = "kj_mark_source.o"


MARKS: Final = Marks()


@dataclass(frozen=True)
class TorchCommands:
    """``main.cpp`` and ``build.ninja`` of ``MARKS``, as torch writes them for C++ alone.

    ``main``: with torch's handling of errors; ``main_bare``: without. Both have the implicit headers.
    """

    main: str
    main_bare: str
    ninja: str

    def to_json(self) -> dict[str, str]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TorchCommands:
        """Raises ``ValueError`` where ``data`` is not valid."""
        texts = {field: data.get(field) for field in cls.__dataclass_fields__}
        if not all(isinstance(text, str) for text in texts.values()):
            raise ValueError("no templates of main.cpp and build.ninja")
        return cls(**{name: str(text) for name, text in texts.items()})

    def main_text(self, request: Mapping[str, Any]) -> str:
        """Return the ``main.cpp`` of ``load_inline`` for a request's fields."""
        template = (self.main if request["with_pytorch_error_handling"] else self.main_bare).split("\n")
        place = template.index(MARKS.text)
        lines = [] if request["no_implicit_headers"] else template[:place]
        lines += request["cpp_sources"]
        if request["functions"] is not None:
            functions = dict(request["functions"])
            for line in template[place + 1 :]:
                if MARKS.function in line:
                    lines += [_filled(line, {MARKS.function: f, MARKS.docstring: d}) for f, d in functions.items()]
                else:
                    lines.append(line)
        return "\n".join(lines)

    def ninja_text(self, request: Mapping[str, Any], directory: Path, sources: Sequence[str]) -> str:
        """Return torch's ``build.ninja`` for a request's fields and the names of its ``sources``."""
        objects = [f"{os.path.splitext(source)[0]}.o" for source in sources]  # noqa: PTH122 - as torch does it
        lists = {
            f" {MARKS.cflag}": _words(request["extra_cflags"]),
            f" {MARKS.ldflag}": _words(request["extra_ldflags"]),
            f" -I{MARKS.include}": _words(request["extra_include_paths"], _include_flag),
            f" {MARKS.object}": _words(objects),
        }
        names = {MARKS.directory: str(directory), MARKS.name: request["name"]}
        lines: list[str] = []
        for line in self.ninja.split("\n"):
            if MARKS.source in line:
                # The one line for each source: its place in the folder comes with the mark of the folder.
                lines += [
                    _filled(line, {MARKS.source: source, MARKS.object: object_, **names})
                    for source, object_ in zip(sources, objects, strict=True)
                ]
            else:
                lines.append(_filled(line, {**lists, **names}))
        return "\n".join(lines)


def _words(words: Iterable[str], form: Callable[[str], str] = str) -> str:
    return "".join(f" {form(word.strip())}" for word in words)


def _include_flag(path: str) -> str:
    # Relative paths are relative to where the compiler works, as in torch.
    return f"-I{shlex.quote(os.path.abspath(path))}"  # noqa: PTH100 - as torch does it


def _filled(text: str, replacements: Mapping[str, str]) -> str:
    """Replace each mark of ``text`` in one pass: the replacements are not searched again."""
    done: list[str] = []
    position = 0
    while True:
        found = [(text.find(mark, position), -len(mark), mark) for mark in replacements]
        place, _, mark = min((item for item in found if item[0] >= 0), default=(-1, 0, ""))
        if place < 0:
            return "".join([*done, text[position:]])
        done += [text[position:place], replacements[mark]]
        position = place + len(mark)
