"""Fixed 64-bit hashes of arrays and texts, the same in every run and process."""

from __future__ import annotations

import hashlib

import numpy as np

from whet.core.types import Array


def scramble(values: Array) -> Array:
    """Every 64-bit number scrambled one to one (the finisher of splitmix64)."""
    z = values.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def scrambled_text(text: str) -> int:
    """A 64-bit digest of the text."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
