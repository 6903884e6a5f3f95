"""A native segment as data: everything that running it takes, and how it is kept in the cache.

An image holds machine code, so it is never part of an artifact; it lives in the cache of its
owner, where a damaged entry counts as absent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field

import numpy as np

from whet.build.shared_constants import checksum, held_bytes
from whet.build.slots import Slot
from whet.core.caching import FileCache
from whet.core.types import Array
from whet.runtime.arrays import address_of

STATUS_BYTES = 8
_MAPPED_OFFSET = 32
"""Bytes in front of the constants in their file, so that they are aligned when mapped: a cache
entry starts with a digest of 32 bytes."""


@dataclass(frozen=True, slots=True)
class CallNote:
    """A kernel that the segment calls: its symbol, the first slot of its parameters, what
    the model calls it, and what it computes."""

    symbol: str
    start: int
    name: str
    text: str


@dataclass(frozen=True, eq=False)
class SegmentImage:
    """Objects, the table of addresses, and the sizes of working memory and constants."""

    objects: tuple[bytes, ...]
    slots: tuple[Slot, ...]
    calls: tuple[CallNote, ...]
    arena_bytes: int
    constants: Array
    """The small constants in the order in which kernels read them, as bytes."""
    shared: Mapping[str, Array] = field(default_factory=dict)
    """The bytes of large constants by their keys, in the order of their numbers."""
    watched: tuple[str, ...] = ()
    """The names of what has a status, by its number."""

    @property
    def symbols(self) -> tuple[str, ...]:
        """The kernels that it calls, in order."""
        return tuple(c.symbol for c in self.calls)

    @property
    def constant_bytes(self) -> int:
        return self.constants.size + sum(a.size for a in self.shared.values())

    def addresses(self, arena: int, status: int) -> list[int]:
        """The table of addresses; those of the caller's arrays are 0."""
        constants = address_of(self.constants)
        shared = [address_of(a) for a in self.shared.values()]
        places: dict[str, Callable[[int], int]] = {
            "arena": lambda at: arena + at,
            "constant": lambda at: constants + at,
            "shared": lambda at: shared[at],
            "status": lambda at: status + STATUS_BYTES * at,
            "alarm": lambda at: status + STATUS_BYTES * len(self.watched),
            "array": lambda at: 0,
        }
        return [places[s.kind](s.at) for s in self.slots]


# ------------------------------------------------------------------------------------- storing
def store_image(image: SegmentImage, cache: FileCache, key: str) -> SegmentImage:
    """Keeps the image; the result maps its constants from the file if that worked."""
    head = {
        "slots": [[s.kind, s.at] for s in image.slots],
        "calls": [asdict(c) for c in image.calls],
        "arena_bytes": image.arena_bytes,
        "constant_bytes": image.constants.size,
        "checksum": checksum(image.constants),
        "shared": list(image.shared),
        "watched": list(image.watched),
        "lengths": [len(o) for o in image.objects],
    }
    text = json.dumps(head).encode()
    cache.put("segment", key, len(text).to_bytes(8, "little") + text + b"".join(image.objects))
    if image.constants.size:
        cache.put("constants", key, bytes(_MAPPED_OFFSET) + image.constants.tobytes())
    return load_image(cache, key) or image


def load_image(cache: FileCache, key: str) -> SegmentImage | None:
    """The image that was kept under the key, with its constants mapped, or None."""
    data = cache.get("segment", key)
    if data is None:
        return None
    end = 8 + int.from_bytes(data[:8], "little")
    head = json.loads(data[8:end])
    constants = _map_constants(cache, key, head["constant_bytes"])
    if constants is None or checksum(constants) != head["checksum"]:
        return None
    shared: dict[str, Array] = {}
    for name in head["shared"]:
        held = held_bytes(name, cache)
        if held is None:
            return None
        shared[name] = held
    objects = []
    for length in head["lengths"]:
        objects.append(data[end : end + length])
        end += length
    return SegmentImage(
        tuple(objects),
        tuple(Slot(kind, at) for kind, at in head["slots"]),
        tuple(CallNote(**fields) for fields in head["calls"]),
        head["arena_bytes"],
        constants,
        shared,
        tuple(head["watched"]),
    )


def _map_constants(cache: FileCache, key: str, nbytes: int) -> Array | None:
    if not nbytes:
        return np.zeros(0, np.uint8)
    mapped = cache.map("constants", key)
    if mapped is None or mapped.size != _MAPPED_OFFSET + nbytes:
        return None
    return mapped[_MAPPED_OFFSET:]
