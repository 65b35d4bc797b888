"""The contents of a build's object files (ELF, 64 bits, little-endian), read without tools.

They are symbols, sections, and the host side's registrations with the CUDA runtime.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from evaluator.builder.recipes.split.refused import Refused

__all__ = ["ObjectFile", "Registered", "Section", "Symbol", "registered"]

_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_RELOCATION: Final = struct.Struct("<QQq")
_MAGIC: Final = b"\x7fELF\x02\x01"
_SYMTAB, _RELA, _DYNSYM, _NOBITS = 2, 4, 11, 8
_STRINGS_FLAG: Final = 0x20
_PC_BIAS: Final = 4
_ENTRY: Final = 0x10
_REGISTRATIONS: Final = {"__cudaRegisterFunction": "kernels", "__cudaRegisterVar": "variables"}
_OTHER_REGISTRATIONS: Final = {"__cudaRegisterManagedVar", "__cudaRegisterTexture", "__cudaRegisterSurface"}


@dataclass(frozen=True)
class Section:
    name: str
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int


@dataclass(frozen=True)
class Symbol:
    """A symbol. ``section`` is 0 where it is defined elsewhere."""

    name: str
    section: int
    value: int
    size: int
    binding: int
    kind: int
    other: int

    @property
    def is_kernel(self) -> bool:
        """Whether it is a function in device code that the host can launch."""
        return self.kind == 2 and bool(self.other & _ENTRY)

    @property
    def is_variable(self) -> bool:
        return self.kind == 1


@dataclass(frozen=True)
class Registered:
    """Mangled names, as the CUDA runtime will look for them in the device code."""

    kernels: frozenset[str]
    variables: frozenset[str]


class ObjectFile:
    """An object file. Raises ``Refused`` for other data."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        try:
            self.sections = self._read_sections()
            self.symbols = self._read_symbols(_SYMTAB)
            self.exported = [symbol for symbol in self._read_symbols(_DYNSYM) if symbol.section]
        except (struct.error, IndexError, ValueError) as error:
            raise Refused(f"an object file is not to be read: {error}") from error

    def contents(self, section: Section) -> bytes:
        if section.kind == _NOBITS:
            return b""
        return self._data[section.offset : section.offset + section.size]

    def section(self, name: str) -> Section | None:
        return next((section for section in self.sections if section.name == name), None)

    def relocations(self) -> Iterator[list[tuple[int, Symbol, int]]]:
        """Yield places, symbols and addends of each section, in the order of places."""
        for section in self.sections:
            if section.kind == _RELA:
                rows = _RELOCATION.iter_unpack(self.contents(section))
                yield sorted(
                    ((place, self.symbols[info >> 32], addend) for place, info, addend in rows),
                    key=lambda row: row[0],
                )

    def text_at(self, symbol: Symbol, addend: int) -> str | None:
        """Return the string that an instruction refers to, or ``None`` where it refers to something else."""
        section = self.sections[symbol.section] if symbol.section < len(self.sections) else None
        if section is None or not section.flags & _STRINGS_FLAG:
            return None
        start = symbol.value + addend + _PC_BIAS
        contents = self.contents(section)
        return contents[start : contents.index(b"\0", start)].decode()

    def _read_sections(self) -> list[Section]:
        header = _HEADER.unpack_from(self._data)
        if not header[0].startswith(_MAGIC):
            raise ValueError("no ELF file")
        offset, size, count, names = header[6], header[11], header[12], header[13]
        if not count and offset:
            # More sections than the header has room for: the first one has their number.
            first = _SECTION.unpack_from(self._data, offset)
            count, names = first[5], first[6] if names == 0xFFFF else names
        rows = [_SECTION.unpack_from(self._data, offset + number * size) for number in range(count)]
        table = rows[names][4] if rows else 0
        return [
            Section(_text(self._data, table + row[0]), row[1], row[2], row[4], row[5], row[6], row[7]) for row in rows
        ]

    def _read_symbols(self, kind: int) -> list[Symbol]:
        table = next((section for section in self.sections if section.kind == kind), None)
        if table is None:
            return []
        names = self.sections[table.link].offset
        return [
            Symbol(_text(self._data, names + name), section, value, size, info >> 4, info & 15, other)
            for name, info, other, section, value, size in _SYMBOL.iter_unpack(self.contents(table))
        ]


def registered(host: ObjectFile) -> Registered:
    """Return the names that the host object announces to the CUDA runtime when it is loaded.

    Raises ``Refused`` where a call is not understood.
    """
    found: dict[str, set[str]] = {"kernels": set(), "variables": set()}
    for relocations in host.relocations():
        latest: str | None = None
        for _, symbol, addend in relocations:
            if symbol.name in _OTHER_REGISTRATIONS:
                raise Refused("a texture, a surface or a managed variable is registered")
            if symbol.name in _REGISTRATIONS:
                if latest is None:
                    raise Refused("the functions that are registered with the CUDA runtime are not known")
                found[_REGISTRATIONS[symbol.name]].add(latest)
                latest = None
            else:
                latest = host.text_at(symbol, addend) or latest
    return Registered(frozenset(found["kernels"]), frozenset(found["variables"]))


def _text(data: bytes, start: int) -> str:
    return data[start : data.index(b"\0", start)].decode("utf-8", "replace")
