"""Arrays that all contestants share.

How fast memory is depends on where the operating system happens to put an array: copying 64 MB
takes twice as long in one process as in another, and keeps doing so.  So that everybody has the
same luck, arrays lie in files beside a model, in memory where there is such a folder, and every
process maps the same ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from whet.core.types import Array

_IN_MEMORY = Path("/dev/shm")
_RESULT = "result"


def folder_in_memory() -> str | None:
    """Where temporary files stay in memory; None where there is no such place."""
    return str(_IN_MEMORY) if _IN_MEMORY.is_dir() else None


def write_shared(folder: Path, values: Mapping[str, Array]) -> None:
    """Make the files of the inputs, and of a result like the first one."""
    first = next(iter(values.values()))
    for name, array in {**values, _RESULT: np.zeros_like(first)}.items():
        array.tofile(_file(folder, name))


def map_shared(folder: Path, names: Iterable[str]) -> tuple[list[Array], Array]:
    """The inputs and the result, as rows of float32."""
    return [_mapped(folder, name) for name in names], _mapped(folder, _RESULT)


def _mapped(folder: Path, name: str) -> Array:
    return np.asarray(np.memmap(_file(folder, name), np.float32, "r+"))


def _file(folder: Path, name: str) -> Path:
    return folder / f"{name}.bin"
