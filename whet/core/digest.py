"""Content hashing: the same content has the same short name in every process."""

from __future__ import annotations

import hashlib

import numpy as np

from whet.core.types import Array


def digest_bytes(*parts: bytes) -> str:
    """A 32-digit hexadecimal digest of the concatenated, length-prefixed parts."""
    state = hashlib.blake2b(digest_size=16)
    for part in parts:
        state.update(len(part).to_bytes(8, "little"))
        state.update(part)
    return state.hexdigest()


def digest_text(*parts: str) -> str:
    return digest_bytes(*(part.encode() for part in parts))


def digest_array(array: Array) -> str:
    """Digest of an array's type, shape and elements in logical order.

    SHA-256, because processors have instructions for it: weights are large.
    """
    data = np.ascontiguousarray(array)
    header = f"{data.dtype.name}{list(array.shape)}".encode()  # `data` is never 0-d
    state = hashlib.sha256(header)
    state.update(data.reshape(-1).view(np.uint8).data)
    return state.hexdigest()[:32]
