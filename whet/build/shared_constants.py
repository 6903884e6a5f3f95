"""Constants that are kept once: shared by kernels of one model, by the programs that it has for
several shapes, and by processes, which map them from one file of the cache.

Their name says how they are made, so that weights which are there need not be packed again.  What
loads a stored model needs this module alone, and none of what packs weights.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from whet.core.caching import FileCache
from whet.core.types import Array

SHARED_FROM_BYTES = 1 << 16
"""Smaller constants are kept with the segment that reads them."""
_KIND = "constant"
_HEAD_BYTES = 32
"""In front of the data in their file, so that they are aligned when mapped: a cache entry starts
with a digest of 32 bytes."""


@dataclass(frozen=True, eq=False)
class Recipe:
    """How a constant is made, and the name of what that gives."""

    key: str
    make: Callable[[], Array]


class _Process:
    """The shared constants that this process holds, by the cache's folder and their key."""

    lock = threading.Lock()
    held: weakref.WeakValueDictionary[tuple[Path | None, str], Array] = (
        weakref.WeakValueDictionary()
    )


def shared_bytes(recipe: Recipe, cache: FileCache) -> Array:
    """The bytes of a constant: those that this process holds, else mapped from the cache, else
    made now and kept there."""
    place = (cache.config.dir, recipe.key)
    with _Process.lock:
        found = _Process.held.get(place)
        if found is None:
            found = _mapped(cache, recipe.key)
        if found is None or not cache.use(_KIND, recipe.key):
            raw = as_bytes(recipe.make()) if found is None else found
            head = checksum(raw).to_bytes(16, "little").ljust(_HEAD_BYTES, b"\0")
            cache.put(_KIND, recipe.key, head + raw.tobytes())
            found = found if found is not None else _mapped(cache, recipe.key)
            found = raw if found is None else found
        _Process.held[place] = found
        return found


def held_bytes(key: str, cache: FileCache) -> Array | None:
    """The bytes of a constant that was made earlier, or None if it is not there any more."""
    place = (cache.config.dir, key)
    with _Process.lock:
        found = _Process.held.get(place)
        if found is None or not cache.use(_KIND, key):
            found = _mapped(cache, key)
        if found is not None:
            _Process.held[place] = found
        return found


def _mapped(cache: FileCache, key: str) -> Array | None:
    mapped = cache.map(_KIND, key)
    if mapped is None or mapped.size < _HEAD_BYTES:
        return None
    expected = int.from_bytes(mapped[:16].tobytes(), "little")
    data = mapped[_HEAD_BYTES:]
    return data if checksum(data) == expected else None


def as_bytes(array: Array) -> Array:
    """The elements of an array in row-major order, as bytes."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def checksum(data: Array) -> int:
    """Tells damage from intact data at the speed of memory.

    Not a digest: only the owner of the cache can write there, and it guards against accidents.
    """
    words = data[: data.size // 8 * 8].view(np.uint64)
    rest = int(data[words.size * 8 :].sum()) if data.size % 8 else 0
    return (int(np.add.reduce(words)) ^ int(np.bitwise_xor.reduce(words)) << 1) + rest + data.size
