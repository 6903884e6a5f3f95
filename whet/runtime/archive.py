"""The container of an artifact: a zip file of stored members in one canonical form.

Any zip tool can read it.  whet itself reads only archives that are, byte for byte, what it
would have written for the same members: the directory at the end names the members, their
headers are computed again from it and compared with the file.  Compression, encryption, links,
duplicate, overlapping or hidden members, comments and odd paths need no rules of their own,
because none of them survives that comparison; and as nothing is ever decompressed, no member
is larger than the file.  Data starts on 64-byte boundaries, so that arrays can be used in place.
"""

from __future__ import annotations

import mmap
import os
import stat
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from whet.runtime.damage import refuse, require
from whet.runtime.files import atomic_write

ALIGNMENT = 64
MAX_MEMBERS = 16
MAX_NAME_BYTES = 100

_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_END64 = struct.Struct("<4sQ2H2I4Q")
_LOCATOR = struct.Struct("<4sIQI")
_END = struct.Struct("<4s4H2IH")
_SIZES = struct.Struct("<2H2Q")
_SIZES_AND_OFFSET = struct.Struct("<2H3Q")
_PADDING = struct.Struct("<3H")

_VERSION = 45
"""The zip version that has 64-bit sizes; they are always used, so that there is one form."""
_DATE = 0x21
"""1980-01-01: the same content gives the same bytes on any day."""
_IN_EXTRA = 0xFFFFFFFF
"""Says that the number is in the 64-bit extra field."""
_PADDING_ID = 0xD935
_REGULAR_FILE = 0o100644 << 16

Chunk = bytes | memoryview


@dataclass(frozen=True, slots=True)
class Entry:
    """One member: name, size in bytes and CRC-32 of its data."""

    name: str
    size: int
    crc: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The places of everything: the header and the data of each member, then the directory."""

    headers: tuple[tuple[int, bytes], ...]
    data: tuple[int, ...]
    directory: tuple[int, bytes]


def plan(entries: Sequence[Entry]) -> Layout:
    """The one layout of these members."""
    headers, data, central = [], [], b""
    offset = 0
    for entry in entries:
        header, record = _member_records(entry, offset)
        headers.append((offset, header))
        data.append(offset + len(header))
        central += record
        offset = data[-1] + entry.size
    count, at_end64 = len(entries), offset + len(central)
    tail = (
        _END64.pack(b"PK\6\6", _END64.size - 12, _VERSION, _VERSION, 0, 0, count, count,
                    len(central), offset)
        + _LOCATOR.pack(b"PK\6\7", 0, at_end64, 1)
        + _END.pack(b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, _IN_EXTRA, _IN_EXTRA, 0)
    )  # fmt: skip
    return Layout(tuple(headers), tuple(data), (offset, central + tail))


def _member_records(entry: Entry, offset: int) -> tuple[bytes, bytes]:
    """The local header, padded so that data is aligned, and the directory record."""
    name = entry.name.encode("ascii")
    common = (_VERSION, 0, 0, 0, _DATE, entry.crc, _IN_EXTRA, _IN_EXTRA, len(name))
    sizes = _SIZES.pack(1, 16, entry.size, entry.size)
    start = offset + _LOCAL.size + len(name) + len(sizes) + _PADDING.size
    fill = -start % ALIGNMENT
    padding = _PADDING.pack(_PADDING_ID, 2 + fill, ALIGNMENT) + bytes(fill)
    extra = sizes + padding
    local = _LOCAL.pack(b"PK\3\4", *common, len(extra)) + name + extra
    extra = _SIZES_AND_OFFSET.pack(1, 24, entry.size, entry.size, offset)
    record = _CENTRAL.pack(b"PK\1\2", 0x300 | _VERSION, *common, len(extra), 0, 0, 0,
                           _REGULAR_FILE, _IN_EXTRA) + name + extra  # fmt: skip
    return local, record


def write_archive(
    path: str | os.PathLike[str], members: Sequence[tuple[str, Sequence[Chunk]]]
) -> None:
    """Writes the members, each given as chunks of bytes, in this order."""
    layout = plan([Entry(name, size_of(chunks), checksum(chunks)) for name, chunks in members])
    with atomic_write(path) as file:
        for (_, header), (_, chunks) in zip(layout.headers, members, strict=True):
            file.write(header)
            for chunk in chunks:
                file.write(chunk)
        file.write(layout.directory[1])


def read_archive(path: str | os.PathLike[str], allowed: Iterable[str]) -> Mapping[str, Member]:
    """The members by name, as views of the memory-mapped file; only `allowed` names may occur.

    Headers and the directory are verified completely; a member's data is not read.
    """
    view = _map(Path(path))
    layout, entries = _read_layout(view)
    for offset, expected in (*layout.headers, layout.directory):
        require(
            view[offset : offset + len(expected)] == expected,
            f"'{path}' is damaged near byte {offset}",
        )
    names = [entry.name for entry in entries]
    unknown = sorted(set(names) - set(allowed))
    require(not unknown, f"'{path}' holds what no artifact has: {unknown}")
    require(len(set(names)) == len(names), f"'{path}' holds a member twice")
    return {
        entry.name: Member(entry, view[start : start + entry.size])
        for entry, start in zip(entries, layout.data, strict=True)
    }


@dataclass(frozen=True, slots=True)
class Member:
    """A member of an archive that was read."""

    entry: Entry
    data: memoryview


def _map(path: Path) -> memoryview:
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            require(stat.S_ISREG(status.st_mode), f"'{path}' is not a file")
            require(
                status.st_size >= _END64.size + _LOCATOR.size + _END.size,
                f"'{path}' is not a whet artifact",
            )
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except OSError as error:
        refuse(f"cannot read '{path}': {error.strerror or error}")


def _read_layout(view: memoryview) -> tuple[Layout, list[Entry]]:
    """The claims of the directory, with every number bounded before it is used."""
    start = len(view) - _END.size - _LOCATOR.size - _END64.size
    signature, *_, count, _, size, offset = _END64.unpack_from(view, start)
    require(signature == b"PK\6\6", "not a whet artifact, or cut off: it does not end as one")
    require(
        0 < count <= MAX_MEMBERS and offset + size == start,
        "the directory of the artifact is damaged",
    )
    entries: list[Entry] = []
    at = offset
    for _ in range(count):
        entry, at = _read_entry(view, at, start)
        entries.append(entry)
    layout = plan(entries)
    require(
        layout.directory[0] == offset and at == start,
        "the members of the artifact do not add up to its size",
    )
    return layout, entries


def _read_entry(view: memoryview, at: int, end: int) -> tuple[Entry, int]:
    """The member that the record at `at` describes, and where the next record begins."""
    require(at + _CENTRAL.size <= end, "the directory of the artifact is cut off")
    fields = _CENTRAL.unpack_from(view, at)
    crc, name_size, extra_at = fields[7], fields[10], at + _CENTRAL.size + fields[10]
    next_at = extra_at + _SIZES_AND_OFFSET.size
    require(
        0 < name_size <= MAX_NAME_BYTES and next_at <= end,
        "the directory of the artifact is damaged",
    )
    name = bytes(view[at + _CENTRAL.size : extra_at])
    require(name.isascii(), "a member of the artifact has an impossible name")
    size = _SIZES_AND_OFFSET.unpack_from(view, extra_at)[2]
    require(size <= len(view), "a member of the artifact is larger than the file")
    return Entry(name.decode("ascii"), size, crc), next_at


def size_of(chunks: Sequence[Chunk]) -> int:
    return sum(len(chunk) for chunk in chunks)


def checksum(chunks: Sequence[Chunk]) -> int:
    """CRC-32 of the chunks in a row."""
    crc = 0
    for chunk in chunks:
        crc = zlib.crc32(chunk, crc)
    return crc
