"""What is particular to aarch64: how instructions hold addresses, and how Linux is asked."""

from __future__ import annotations

import struct

GOT_KINDS = frozenset({311, 312})
"""Relocations that want the place where an address is stored instead of the address itself."""

_PAGES = frozenset({275, 276, 311})  # adrp: the distance in pages of 4 KiB
_CALLS = frozenset({282, 283})  # b, bl: the distance in instructions
_LOW_BITS = {277: 0, 278: 0, 284: 1, 285: 2, 286: 3, 299: 4, 312: 3}
"""Relocations for the low 12 bits of an address, and the log2 of the unit they count in."""

CALL_LINUX = struct.pack(
    "<7I",
    0xAA0003E8,  # mov x8, x0    the number of the call goes last
    0xAA0103E0,  # mov x0, x1
    0xAA0203E1,  # mov x1, x2
    0xAA0303E2,  # mov x2, x3
    0xD4000001,  # svc #0
    0xD65F03C0,  # ret
    0xD503201F,  # nop
)
"""i64 (i64 number, i64, i64, i64): a system call with three arguments."""
WRITE, EXIT = 64, 94


def relocate(image: bytearray, offset: int, place: int, kind: int, target: int) -> None:
    """Write the target's address into what stands at the offset, which will be at `place`."""
    if kind == 257:
        struct.pack_into("<Q", image, offset, target)
        return
    if kind in (260, 261):
        struct.pack_into("<q" if kind == 260 else "<i", image, offset, target - place)
        return
    (word,) = struct.unpack_from("<I", image, offset)
    if kind in _PAGES:
        pages = (target >> 12) - (place >> 12)
        assert -(1 << 20) <= pages < 1 << 20, "too far for adrp"
        word = word & ~0x60FFFFE0 | (pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5
    elif kind in _CALLS:
        steps = (target - place) >> 2
        assert -(1 << 25) <= steps < 1 << 25, "too far for bl"
        word = word & ~0x03FFFFFF | steps & 0x03FFFFFF
    elif kind in _LOW_BITS:
        unit = _LOW_BITS[kind]
        assert target % (1 << unit) == 0, "an address that is not aligned"
        word = word & ~0x003FFC00 | ((target & 0xFFF) >> unit) << 10
    else:
        raise NotImplementedError(f"relocations of type {kind}")
    struct.pack_into("<I", image, offset, word)
