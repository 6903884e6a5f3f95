"""Arrays as safetensors: eight bytes of header size, a JSON header, then plain data.

The format has no names for some of whet's element types (int4, the `fnuz` floats, ...).  Their
arrays are stored as bytes, and the header's metadata says what the bytes are.  Reading trusts
nothing: names, types, shapes and offsets are checked before an array is made, and arrays are
views of the given memory, so reading allocates nothing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from whet.core import dtypes
from whet.core.dtypes import DType
from whet.core.types import MAX_ELEMENTS, Array
from whet.runtime.damage import refuse, require
from whet.runtime.strict_json import parse_json_object

MAX_HEADER_BYTES = 16 << 20
MAX_RANK = 64
_ALIGNMENT = 64

_NAMES = {
    dtypes.f64: "F64", dtypes.f32: "F32", dtypes.f16: "F16", dtypes.bf16: "BF16",
    dtypes.i64: "I64", dtypes.i32: "I32", dtypes.i16: "I16", dtypes.i8: "I8",
    dtypes.u64: "U64", dtypes.u32: "U32", dtypes.u16: "U16", dtypes.u8: "U8",
    dtypes.bool_: "BOOL", dtypes.f8e4m3fn: "F8_E4M3", dtypes.f8e5m2: "F8_E5M2",
}  # fmt: skip
_BY_NAME = {name: dtype for dtype, name in _NAMES.items()}


def encode(arrays: Mapping[str, Array]) -> list[bytes | memoryview]:
    """The file as chunks: the header, then the data of each array, widest elements first.

    That order keeps every array aligned to its elements without the gaps that the format
    forbids.
    """
    ordered = sorted(arrays.items(), key=lambda item: (-item[1].dtype.itemsize, item[0]))
    header: dict[str, Any] = {}
    metadata: dict[str, str] = {}
    chunks: list[bytes | memoryview] = []
    offset = 0
    for name, array in ordered:
        dtype = dtypes.dtype_of(array)
        if dtype not in _NAMES:
            metadata[name] = dtype.name
        data = np.asarray(array, dtype.numpy, order="C").reshape(-1).view(np.uint8)
        header[name] = {
            "dtype": _NAMES.get(dtype, "U8"),
            "shape": list(array.shape),
            "data_offsets": [offset, offset + data.nbytes],
        }
        offset += data.nbytes
        chunks.append(data.data)
    if metadata:
        header["__metadata__"] = metadata
    text = json.dumps(header, separators=(",", ":"), sort_keys=True).encode()
    text += b" " * (-(8 + len(text)) % _ALIGNMENT)
    return [len(text).to_bytes(8, "little") + text, *chunks]


def decode(data: memoryview) -> dict[str, Array]:
    """The arrays, as read-only views of the data; `WH3001` if anything does not fit."""
    header, body = _split(data)
    metadata = header.pop("__metadata__", {})
    require(isinstance(metadata, dict), "the weights' metadata is malformed")
    arrays: dict[str, Array] = {}
    ends: dict[int, int] = {}
    for name, record in header.items():
        dtype, shape, start, end = _read_record(name, record, metadata.get(name))
        require(0 <= start <= end <= len(body), f"the weight '{name}' lies outside the file")
        require(
            end - start == math.prod(shape) * dtype.itemsize,
            f"the weight '{name}' has {end - start} bytes, which is not {dtype}{shape}",
        )
        if end > start:
            require(start not in ends, f"the weight '{name}' overlaps another")
            ends[start] = end
        arrays[name] = _view(body[start:end], dtype, shape)
    _check_no_gaps(ends, len(body))
    return arrays


def _split(data: memoryview) -> tuple[dict[str, Any], memoryview]:
    require(len(data) >= 8, "the weights are cut off")
    size = int.from_bytes(data[:8], "little")
    require(
        size <= min(len(data) - 8, MAX_HEADER_BYTES), f"the weights' header claims {size} bytes"
    )
    return parse_json_object(data[8 : 8 + size], "the weights' header"), data[8 + size :]


def _read_record(name: str, record: Any, stored: Any) -> tuple[DType, tuple[int, ...], int, int]:
    """Type, shape, begin and end of one array."""
    try:
        kind, shape, (start, end) = record["dtype"], record["shape"], record["data_offsets"]
        dtype = _BY_NAME[kind] if stored is None else _stored_dtype(kind, stored)
    except (TypeError, KeyError, ValueError):
        refuse(f"the record of the weight '{name}' is malformed")
    sizes = [*shape, start, end] if isinstance(shape, list) else [None]
    sound = all(type(n) is int and 0 <= n <= MAX_ELEMENTS * 8 for n in sizes)
    require(sound and len(shape) <= MAX_RANK, f"the record of the weight '{name}' is malformed")
    return dtype, tuple(shape), start, end


def _stored_dtype(kind: str, stored: str) -> DType:
    """The type of an array that is stored as bytes."""
    found = {d.name: d for d in dtypes.ALL if d not in _NAMES}[stored]
    if kind != "U8":
        raise ValueError(kind)
    return found


def _view(data: memoryview, dtype: DType, shape: tuple[int, ...]) -> Array:
    if dtype == dtypes.bool_:
        # Any other byte in an array of booleans makes NumPy's results undefined.
        require(
            int(np.frombuffer(data, np.uint8).max(initial=0)) <= 1,
            "a boolean weight holds other numbers than 0 and 1",
        )
    array = np.frombuffer(data, np.uint8).view(dtype.numpy).reshape(shape)
    array.flags.writeable = False
    return array


def _check_no_gaps(ends: dict[int, int], size: int) -> None:
    """The arrays must cover the data exactly, so that nothing can hide in it."""
    at = 0
    while at in ends:
        at = ends.pop(at)
    require(at == size and not ends, "the weights do not cover their file")
