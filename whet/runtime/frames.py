"""Messages over a pipe: a size, a JSON header, then the bytes of the arrays.

<8 bytes: size of the header> {"...": ..., "arrays": [{"dtype": "f32", "shape": [2]}]} <data>
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np

from whet.core.dtypes import dtype_of, parse_dtype
from whet.core.types import Array, TensorType


def write_frame(stream: BinaryIO, message: dict[str, Any], arrays: Sequence[Array] = ()) -> None:
    """Sends a message with its arrays."""
    described = [{"dtype": dtype_of(a).name, "shape": list(a.shape)} for a in arrays]
    header = json.dumps({**message, "arrays": described}).encode()
    stream.write(len(header).to_bytes(8, "little") + header)
    for array in arrays:
        stream.write(np.asarray(array, order="C").reshape(-1).view(np.uint8).data)
    stream.flush()


def read_frame(stream: BinaryIO) -> tuple[dict[str, Any], list[Array]]:
    """The next message and its arrays; EOFError when the other side is gone."""
    size = int.from_bytes(_read(stream, 8), "little")
    message: dict[str, Any] = json.loads(_read(stream, size))
    arrays = []
    for described in message.pop("arrays"):
        type = TensorType(tuple(described["shape"]), parse_dtype(described["dtype"]))
        # NumPy's own memory, such as callers have: large arrays lie in large pages.
        array: Array = np.empty(type.shape, type.dtype.numpy)
        _read_into(stream, array.reshape(-1).view(np.uint8))
        arrays.append(array)
    return message, arrays


def _read(stream: BinaryIO, size: int) -> bytes:
    """Exactly that many bytes."""
    data = np.empty(size, np.uint8)
    _read_into(stream, data)
    return data.tobytes()


def _read_into(stream: BinaryIO, memory: Array) -> None:
    """Fills the bytes, also from a stream that gives what it happens to have."""
    view, start = memory.data, 0
    while start < len(view):
        count = stream.readinto(view[start:])  # type: ignore[attr-defined]
        if not count:
            raise EOFError
        start += count
