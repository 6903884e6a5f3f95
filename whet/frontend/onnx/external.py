"""External data: tensor bytes that lie in other files of the model's folder.

A model file is not trusted.  A location is accepted only if it names a plain file inside the
model's folder: relative, without `..`, reached through no symbolic link that leads out, and
with no second name (hard link) elsewhere.
"""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from whet.core.errors import ModelError, check, fail


class ExternalData:
    """Reads parts of files inside one folder; each file is memory-mapped once."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._files: dict[str, memoryview] = {}

    def read(self, tensor: str, entries: Mapping[str, str], expected: int) -> memoryview:
        """The `expected` bytes that the entries (location, offset, length) point to."""
        location = entries.get("location", "")
        data = self._files.get(location)
        if data is None:
            data = self._files[location] = self._map(tensor, location)
        offset = _number(tensor, entries, "offset", 0)
        length = _number(tensor, entries, "length", expected)
        where = f"tensor '{tensor}' in '{location}'"
        _check(length == expected, f"{where} has {length} bytes, its type needs {expected}")
        _check(offset + length <= len(data), f"{where} ends after the file's {len(data)} bytes")
        return data[offset : offset + length]

    def _map(self, tensor: str, location: str) -> memoryview:
        where = f"external data '{location}' of tensor '{tensor}'"
        check(
            self._folder is not None,
            "WH2004",
            f"tensor '{tensor}' lies in another file and the model has no folder",
            hint="give the model as a path, not as bytes or a loaded model",
            kind=ModelError,
        )
        assert self._folder is not None
        path = PurePosixPath(location)
        _check(
            bool(location)
            and "\0" not in location
            and "\\" not in location
            and not path.is_absolute()
            and ".." not in path.parts,
            f"{where} is not a path inside the model's folder",
        )
        try:
            folder = self._folder.resolve(strict=True)
            target = (folder / path).resolve(strict=True)
            _check(target.is_relative_to(folder), f"{where} leads out of the model's folder")
            return _map_plain_file(target, where)
        except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links
            fail("WH2004", f"{where} cannot be read: {error}", kind=ModelError)


def _map_plain_file(path: Path, where: str) -> memoryview:
    # The path was resolved, so a link here was put in place after the check: refuse it.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        _check(stat.S_ISREG(status.st_mode), f"{where} is not a plain file")
        _check(status.st_nlink == 1, f"{where} has a second name (hard link)")
        if status.st_size == 0:
            return memoryview(b"")
        return memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
    finally:
        os.close(descriptor)


def _number(tensor: str, entries: Mapping[str, str], key: str, default: int) -> int:
    text = entries.get(key, "")
    if not text:
        return default
    _check(
        text.isascii() and text.isdigit() and len(text) <= 18,
        f"tensor '{tensor}' has the {key} '{text}', not a number of bytes",
    )
    return int(text)


def _check(condition: bool, message: str) -> None:
    check(condition, "WH2004", message, kind=ModelError)
