"""The parts of an object file: sections, what it defines, and what it needs from others."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from whet.core.errors import WhetError, check

PROGBITS, SYMTAB, RELA, NOBITS = 1, 2, 4, 8
WRITABLE, ALLOCATED, EXECUTABLE = 1, 2, 4
GLOBAL = 1
UNDEFINED = 0
HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QIIq")


@dataclass(frozen=True, slots=True)
class Section:
    name: str
    kind: int
    flags: int
    data: bytes
    link: int
    info: int
    """For relocations: the section that they change."""
    alignment: int


@dataclass(frozen=True, slots=True)
class Symbol:
    name: str
    binding: int
    section: int
    value: int


@dataclass(frozen=True, slots=True)
class Relocation:
    """A place in a section where the address of a symbol has to be filled in."""

    section: int
    offset: int
    kind: int
    symbol: int
    addend: int


@dataclass(frozen=True, slots=True)
class ObjectFile:
    machine: int
    sections: tuple[Section, ...]
    symbols: tuple[Symbol, ...]
    relocations: tuple[Relocation, ...]


def read_object(data: bytes) -> ObjectFile:
    """All parts of a 64-bit little-endian object file."""
    sections = read_sections(data)
    relocations = [
        Relocation(s.info, offset, kind, symbol, addend)
        for s in sections
        if s.kind == RELA
        for offset, kind, symbol, addend in _RELOCATION.iter_unpack(s.data)
    ]
    machine: int = HEADER.unpack_from(data)[2]
    return ObjectFile(machine, tuple(sections), tuple(read_symbols(sections)), tuple(relocations))


def read_sections(data: bytes) -> list[Section]:
    """The sections of a 64-bit little-endian object file."""
    check(data[:6] == b"\x7fELF\x02\x01", "WH1304", "not a 64-bit little-endian ELF file")
    try:
        header = HEADER.unpack_from(data)
        table, count, names = header[6], header[12], header[13]
        raw = [SECTION.unpack_from(data, table + n * SECTION.size) for n in range(count)]
        strings = raw[names][4]
        return [
            Section(
                _string(data, strings + name), kind, flags,
                bytes(size) if kind == NOBITS else data[start : start + size],
                link, info, max(alignment, 1),
            )
            for name, kind, flags, _, start, size, link, info, alignment, _ in raw
        ]  # fmt: skip
    except (struct.error, IndexError, ValueError) as error:
        raise WhetError("WH1304", "an object file is damaged") from error


def read_symbols(sections: Sequence[Section]) -> list[Symbol]:
    """The symbols of an object file, in the order in which relocations count them."""
    return [
        Symbol(_string(sections[s.link].data, name), info >> 4, section, value)
        for s in sections
        if s.kind == SYMTAB
        for name, info, _, section, value, _ in _SYMBOL.iter_unpack(s.data)
    ]


def undefined_symbols(objects: Iterable[bytes]) -> list[str]:
    """The names that the objects use and none of them defines, sorted."""
    used: set[str] = set()
    defined: set[str] = set()
    for data in objects:
        for symbol in read_symbols(read_sections(data)):
            if symbol.name:
                (used if symbol.section == UNDEFINED else defined).add(symbol.name)
    return sorted(used - defined)


def _string(data: bytes, start: int) -> str:
    return data[start : data.index(b"\0", start)].decode()
