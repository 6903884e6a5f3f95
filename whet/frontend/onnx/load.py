"""Reading a model: from a path, from bytes or from a loaded ModelProto."""

from __future__ import annotations

import mmap
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError

from whet.core.errors import ModelError, UsageError, check, fail
from whet.frontend.onnx.external import ExternalData

MAX_FILE_BYTES = (2 << 30) - 1
"""The format's own limit on one file; larger weights are external data."""


@dataclass(frozen=True, slots=True)
class Source:
    """A parsed model and access to the files beside it."""

    proto: Any
    external: ExternalData


def load_model(model: Any) -> Source:
    """The model behind a path, bytes or an `onnx.ModelProto`."""
    if isinstance(model, onnx.ModelProto):
        return Source(model, ExternalData(None))
    if isinstance(model, (bytes, bytearray, memoryview)):
        return Source(_parse(bytes(model), "the model"), ExternalData(None))
    if isinstance(model, (str, os.PathLike)):
        path = Path(model)
        return Source(_parse(_read(path), f"'{path}'"), ExternalData(path.parent))
    fail(
        "WH2007",
        f"a model is a path, bytes or onnx.ModelProto, not {type(model).__name__}",
        kind=UsageError,
    )


def _read(path: Path) -> memoryview | bytes:
    """The contents of the file, mapped: a copy would take as long as parsing it."""
    try:
        status = path.stat()
        size = status.st_size
        check(stat.S_ISREG(status.st_mode), "WH2001", f"'{path}' is not a file", kind=ModelError)
        check(
            size <= MAX_FILE_BYTES,
            "WH2006",
            f"'{path}' has {size} bytes, more than the format's limit of 2 GiB",
            hint="store the weights as external data",
            kind=ModelError,
        )
        if size == 0:
            return b""
        with path.open("rb") as file:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        fail("WH2001", f"'{path}' cannot be read: {error}", kind=ModelError)


def _parse(data: memoryview | bytes, title: str) -> Any:
    check(bool(data), "WH2001", f"{title} is empty", kind=ModelError)
    proto: Any = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except DecodeError:
        fail("WH2001", f"{title} is not an ONNX model or is damaged", kind=ModelError)
    check(
        proto.HasField("graph"),
        "WH2001",
        f"{title} is not an ONNX model: it has no graph",
        kind=ModelError,
    )
    return proto
