"""ELF files for foreign machines: objects linked to an address, memory written as an executable.

Enough for what the code generator emits, so that its objects for another processor can be run
under an emulator without that processor's tool chain.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from tests.codegen.aarch64 import GOT_KINDS, relocate
from whet.codegen.llvm.elf import (
    ALLOCATED,
    GLOBAL,
    HEADER,
    PROGBITS,
    SECTION,
    UNDEFINED,
    WRITABLE,
    ObjectFile,
    Symbol,
    read_object,
)

AARCH64 = 183
PAGE = 0x10000
"""The largest page of the machines in question: what lies in other pages can be protected."""

READ, WRITE, EXECUTE = 4, 2, 1
_SEGMENT = struct.Struct("<IIQQQQQQ")


class LinkError(Exception):
    """The objects cannot be linked."""


# ------------------------------------------------------------------------------------- linking
def loaded(file: ObjectFile) -> list[int]:
    """The sections that a program needs; nothing unwinds a stack here."""
    found = [
        n
        for n, s in enumerate(file.sections)
        if s.flags & ALLOCATED and s.data and s.name != ".eh_frame"
    ]
    for n in found:
        if file.sections[n].flags & WRITABLE or file.sections[n].kind != PROGBITS:
            raise LinkError(f"section {file.sections[n].name} is not code or read-only data")
    return found


@dataclass(frozen=True)
class Code:
    """Linked code and read-only data, and where its global symbols are."""

    data: bytes
    symbols: dict[str, int]


def link(objects: Sequence[bytes], base: int) -> Code:
    """The objects one after the other at the address, with all references filled in."""
    files = [read_object(o) for o in objects]
    if {f.machine for f in files} != {AARCH64}:
        raise LinkError("only objects for aarch64 can be linked")
    image = bytearray()
    places: list[dict[int, int]] = []
    for file in files:
        places.append({})
        for n in loaded(file):
            section = file.sections[n]
            image += bytes(-len(image) % section.alignment)
            places[-1][n] = base + len(image)
            image += section.data
    defined = _global_symbols(files, places)
    image += bytes(-len(image) % 8)
    slots: dict[int, int] = {}
    for file, place in zip(files, places):
        for r in file.relocations:
            if r.section not in place:
                continue
            target = _address(file.symbols[r.symbol], place, defined) + r.addend
            if r.kind in GOT_KINDS:
                # The address is read from a slot of its own behind the code.
                if target not in slots:
                    slots[target] = base + len(image)
                    image += struct.pack("<Q", target)
                target = slots[target]
            at = place[r.section] + r.offset
            relocate(image, at - base, at, r.kind, target)
    return Code(bytes(image), defined)


def _global_symbols(
    files: Sequence[ObjectFile], places: Sequence[dict[int, int]]
) -> dict[str, int]:
    found: dict[str, int] = {}
    for file, place in zip(files, places):
        for s in file.symbols:
            if s.binding != GLOBAL or s.section == UNDEFINED:
                continue
            if s.name in found:
                raise LinkError(f"{s.name} is defined twice")
            found[s.name] = place[s.section] + s.value
    return found


def _address(symbol: Symbol, place: dict[int, int], defined: dict[str, int]) -> int:
    if symbol.section != UNDEFINED:
        return place[symbol.section] + symbol.value
    if symbol.name not in defined:
        raise LinkError(f"nothing defines {symbol.name}")
    return defined[symbol.name]


# --------------------------------------------------------------------------------- executables
@dataclass(frozen=True)
class Region:
    """Memory of a program."""

    address: int
    data: bytes
    access: int


class MemoryMap:
    """Regions with pages between them that nobody may touch.

    With `at_end` a region ends where the forbidden page begins, otherwise it starts right
    after one.
    """

    def __init__(self, *, at_end: bool) -> None:
        self.at_end = at_end
        self.regions: list[Region] = []
        self._next = 16 * PAGE

    def reserve(self, nbytes: int) -> int:
        """An address for so many bytes."""
        body = -(-max(nbytes, 1) // PAGE) * PAGE
        start = self._next + (body - nbytes if self.at_end else 0)
        self._next += body + PAGE
        return start

    def put(self, data: bytes, access: int = READ | WRITE) -> int:
        """The address of memory with these contents."""
        address = self.reserve(len(data))
        self.fill(address, data, access)
        return address

    def fill(self, address: int, data: bytes, access: int) -> None:
        """Contents for memory that was reserved; it may stay shorter than announced."""
        if data:
            self.regions.append(Region(address, data, access))


def executable(regions: Sequence[Region], entry: int) -> bytes:
    """The file of a static program that consists of these regions."""
    headers = HEADER.size + _SEGMENT.size * len(regions)
    body, segments = bytearray(), b""
    for r in regions:
        # An address and its place in the file have to agree within a page.
        body += bytes((r.address - headers - len(body)) % PAGE)
        offset = headers + len(body)
        size = len(r.data)
        segments += _SEGMENT.pack(1, r.access, offset, r.address, r.address, size, size, PAGE)
        body += r.data
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    header = HEADER.pack(ident, 2, AARCH64, 1, entry, HEADER.size, 0, 0, HEADER.size,
                          _SEGMENT.size, len(regions), SECTION.size, 0, 0)  # fmt: skip
    return header + segments + bytes(body)
