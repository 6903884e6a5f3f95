"""Objects for x86-64 in memory: all sections in one piece, with all references filled in.

LLVM's loader asks the system for memory section by section.  In a process that has mapped much,
these may lie further apart than an instruction reaches, and then it ends the process.

    code of all objects, stubs | constants of all objects, slots | variables
    may be run                 | may be read                     | may be written
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from whet.codegen.llvm.elf import (
    ALLOCATED,
    EXECUTABLE,
    GLOBAL,
    NOBITS,
    UNDEFINED,
    WRITABLE,
    ObjectFile,
    Section,
    Symbol,
    read_object,
)
from whet.core.errors import WhetError, check

X86_64 = 62
_ADDRESS, _PC32, _PLT32 = 1, 2, 4
_SLOTS = frozenset({9, 41, 42})
"""Relocations that want the place where an address is stored instead of the address itself."""
_REACH = 1 << 31
_JUMP = struct.Struct("<6sQxx")
"""A stub: a jump to the address behind it, wherever that is."""
_TO_WHAT_FOLLOWS = b"\xff\x25\0\0\0\0"
_SLOT_BYTES = 8
_PROTECTIONS = (mmap.PROT_READ | mmap.PROT_EXEC, mmap.PROT_READ, mmap.PROT_READ | mmap.PROT_WRITE)

_Sections = list[tuple[int, int, Section]]
"""Number of the file, number of the section, section."""

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class LoadedCode:
    """Objects that were loaded; the memory lives as long as this.

    What they use and do not define is given, or belongs to the C library.
    """

    def __init__(self, objects: Sequence[bytes], given: Mapping[str, int]) -> None:
        files = [read_object(data) for data in objects]
        check(all(f.machine == X86_64 for f in files), "WH1304", "code for another machine")
        layout = _Layout()
        for number, file in enumerate(files):
            layout.add(number, file)
        layout.finish()
        # Private: a child that is forked has variables of its own.
        private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._memory = mmap.mmap(-1, max(layout.ends[-1], 1), private)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self._symbols = _defined(files, layout.places, base)
        image = _filled(files, layout, base, self._symbols, given)
        self._memory[: len(image)] = bytes(image)
        for start, end, access in zip((0, *layout.ends), layout.ends, _PROTECTIONS):
            if end > start and _LIBC.mprotect(base + start, end - start, access):
                raise OSError(ctypes.get_errno(), "memory cannot be made executable")

    def address(self, name: str) -> int:
        """The address of a global symbol, or 0."""
        return self._symbols.get(name, 0)


@dataclass
class _Layout:
    """Where everything goes, counted from the start of the memory."""

    groups: tuple[_Sections, _Sections, _Sections] = field(default_factory=lambda: ([], [], []))
    """Code, constants and variables."""
    places: dict[tuple[int, int], int] = field(default_factory=dict)
    stubs: dict[str, int] = field(default_factory=dict)
    slots: dict[tuple[int, int], int] = field(default_factory=dict)
    """By file and symbol."""
    ends: list[int] = field(default_factory=list)

    def add(self, number: int, file: ObjectFile) -> None:
        for n, s in enumerate(file.sections):
            if s.flags & ALLOCATED and s.data and s.name != ".eh_frame":
                group = 0 if s.flags & EXECUTABLE else 2 if s.flags & WRITABLE else 1
                self.groups[group].append((number, n, s))
        for r in file.relocations:
            symbol = file.symbols[r.symbol]
            if r.kind in _SLOTS:
                self.slots[number, r.symbol] = 0
            elif symbol.section == UNDEFINED:
                self.stubs[symbol.name] = 0

    def finish(self) -> None:
        end = 0
        for group, sections in enumerate(self.groups):
            for number, n, s in sections:
                end += -end % s.alignment
                self.places[number, n] = end
                end += len(s.data)
            end += -end % _JUMP.size
            if group == 0:
                self.stubs = {name: end + k * _JUMP.size for k, name in enumerate(self.stubs)}
                end += len(self.stubs) * _JUMP.size
            if group == 1:
                self.slots = {key: end + k * _SLOT_BYTES for k, key in enumerate(self.slots)}
                end += len(self.slots) * _SLOT_BYTES
            end += -end % mmap.PAGESIZE
            self.ends.append(end)


def _defined(
    files: Sequence[ObjectFile], places: Mapping[tuple[int, int], int], base: int
) -> dict[str, int]:
    """The addresses of what the objects define for each other and for the caller."""
    found: dict[str, int] = {}
    for number, file in enumerate(files):
        for s in file.symbols:
            if s.binding >= GLOBAL and (number, s.section) in places:
                found.setdefault(s.name, base + places[number, s.section] + s.value)
    return found


def _filled(
    files: Sequence[ObjectFile],
    layout: _Layout,
    base: int,
    defined: Mapping[str, int],
    given: Mapping[str, int],
) -> bytearray:
    """The bytes of all sections, stubs and slots."""
    image = bytearray(layout.ends[-1])
    for sections in layout.groups:
        for number, n, section in sections:
            if section.kind != NOBITS:
                start = layout.places[number, n]
                image[start : start + len(section.data)] = section.data

    def elsewhere(name: str) -> int:
        return given[name] if name in given else _in_c_library(name)

    def target(number: int, symbol: Symbol) -> int:
        if symbol.section != UNDEFINED:
            return base + layout.places[number, symbol.section] + symbol.value
        if symbol.name in defined:
            return defined[symbol.name]
        return elsewhere(symbol.name)

    for name, at in layout.stubs.items():
        if name not in defined:
            _JUMP.pack_into(image, at, _TO_WHAT_FOLLOWS, elsewhere(name))
    for (number, n), at in layout.slots.items():
        struct.pack_into("<Q", image, at, target(number, files[number].symbols[n]))
    for number, file in enumerate(files):
        for r in file.relocations:
            if (number, r.section) not in layout.places:
                continue
            at, symbol = layout.places[number, r.section] + r.offset, file.symbols[r.symbol]
            if r.kind in _SLOTS:
                address = base + layout.slots[number, r.symbol]
            elif symbol.section == UNDEFINED and symbol.name not in defined and r.kind == _PLT32:
                address = base + layout.stubs[symbol.name]
            else:
                address = target(number, symbol)
            _relocate(image, at, base + at, r.kind, address + r.addend)
    return image


def _in_c_library(name: str) -> int:
    try:
        return ctypes.cast(_LIBC[name], ctypes.c_void_p).value or 0
    except AttributeError:
        raise WhetError("WH1304", f"this system has no function '{name}'") from None


def _relocate(image: bytearray, offset: int, place: int, kind: int, target: int) -> None:
    """Write the target's address into what stands at the offset, which is at `place`."""
    if kind == _ADDRESS:
        struct.pack_into("<Q", image, offset, target)
    elif kind in (_PC32, _PLT32) or kind in _SLOTS:
        distance = target - place
        check(-_REACH <= distance < _REACH, "WH1304", "code refers to what is out of its reach")
        struct.pack_into("<i", image, offset, distance)
    else:
        raise WhetError("WH1304", f"a relocation of type {kind}, which x86-64 code has not had")
