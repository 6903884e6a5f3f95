"""A cache of files, addressed by the content that they were made from.

The folder belongs to one user and nobody else may read it.  An entry is written beside its
place and renamed, so that readers see all of it or nothing; it starts with the digest of its
contents, so that a damaged one is found out and counts as absent.  What was not used for longest
is removed when the cache grows beyond its limit.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from whet.core.cache_contents import Entry, entries, keep_newest, mark_used, remove, shrink
from whet.core.cache_folder import CacheRefusedError, Folder, mark, open_folder, write_file
from whet.core.config import CacheConfig
from whet.core.digest import digest_bytes
from whet.core.types import Array

_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
_DIGEST_LENGTH = len(digest_bytes())
_LOOKS_PER_LIMIT = 32
"""A process looks at the size of the cache at its first entry, and then each time when it has
written this part of the limit."""


class _Process:
    """The caches that this process knows, by the configured folder."""

    unseen: dict[Path, int] = {}
    """Bytes written since it last looked at the size."""
    problems: dict[Path, str] = {}
    """Why something could not be kept."""


@dataclass(frozen=True, slots=True)
class FileCache:
    """Bytes by kind and key.

    A cache is a convenience: when its folder is another user's, or the disk is full or
    read-only, `put` stores nothing and `get` finds nothing; `problem` then says why.
    """

    config: CacheConfig

    def get(self, kind: str, key: str) -> bytes | None:
        """The bytes that were stored under the key; None if nothing was, or it is damaged."""
        with self._opened(kind, key) as file:
            return None if file is None else _intact(file.read())
        return None

    def map(self, kind: str, key: str) -> Array | None:
        """The bytes that were stored under the key, in memory only as far as they are read.

        Nothing is checked but that there is an entry: whoever maps data knows a checksum.
        """
        with self._opened(kind, key) as file, contextlib.suppress(ValueError):
            # ValueError: an empty or shortened file.
            return None if file is None else np.memmap(file, np.uint8, "r", _DIGEST_LENGTH)
        return None

    def put(self, kind: str, key: str, data: bytes) -> None:
        """Store the data; an entry with the same key is replaced at once and as a whole."""
        name = _path(kind, key)
        if self.limit and len(data) > self.limit:
            self._remember(f"{len(data) // 1_000_000} MB are more than it may hold "
                           "(WHET_CACHE_MEGABYTES)")  # fmt: skip
            return
        with self._folder(make=True) as folder:
            if folder is not None:
                _write(folder, kind, name, digest_bytes(data).encode() + data)
                self._stay_below_limit(folder, len(data))

    def use(self, kind: str, key: str) -> bool:
        """Whether there is an entry under the key, which counts as used now."""
        with self._opened(kind, key) as file:
            return file is not None
        return False

    def keep(self, kind: str, name: str, data: bytes, *, newest: int) -> Path | None:
        """Write a file for people to read; of its kind only the newest ones are kept.

        Its path, or None if it could not be written.
        """
        with self._folder(make=True) as folder:
            if folder is not None:
                _write(folder, kind, f"{kind}/{name}", data)
                keep_newest(folder.descriptor, kind, newest)
                return folder.path / kind / name
        return None

    # ------------------------------------------------------------------------------- as a whole
    @property
    def limit(self) -> int:
        """Bytes that the cache may hold; 0 for any number."""
        return self.config.megabytes * 1_000_000

    @property
    def keeps(self) -> bool:
        """Whether what is put into it is found again, as far as is known."""
        return self.config.enabled and self.problem is None

    @property
    def problem(self) -> str | None:
        """Why nothing can be kept, or something could not be; None if all is well."""
        if not self.config.enabled:
            return None
        if self.config.dir is None:
            return "this user has no home folder"
        with self._folder(make=False):
            pass
        return _Process.problems.get(self.config.dir)

    @property
    def folder(self) -> Path | None:
        """The folder of the entries; None if there are none yet."""
        with self._folder(make=False) as folder:
            return None if folder is None else folder.path
        return None

    def entries(self) -> list[Entry]:
        with self._folder(make=False) as folder:
            return [] if folder is None else list(entries(folder.descriptor))
        return []

    def clear(self) -> tuple[int, int]:
        """Removes all entries; how many they were and their bytes."""
        with self._folder(make=False) as folder:
            if folder is not None:
                return remove(folder.descriptor, list(entries(folder.descriptor)))
        return 0, 0

    # ---------------------------------------------------------------------------------- folders
    @contextlib.contextmanager
    def _folder(self, *, make: bool) -> Iterator[Folder | None]:
        """The open folder, or None; errors of the file system end the block and are remembered."""
        configured = self.config.dir
        folder = None
        if self.config.enabled and configured is not None:
            try:
                folder = open_folder(configured, make=make)
            except CacheRefusedError as error:
                self._remember(str(error))
            except OSError as error:
                self._remember(f"'{configured}': {error.strerror or error}")
        try:
            yield folder
        except OSError as error:
            self._remember(f"'{configured}': {error.strerror or error}")
        finally:
            if folder is not None:
                os.close(folder.descriptor)

    @contextlib.contextmanager
    def _opened(self, kind: str, key: str) -> Iterator[BinaryIO | None]:
        """An entry's file, or None; being opened counts as a use."""
        name, found = _path(kind, key), None
        with self._folder(make=False) as folder:
            if folder is not None:
                with contextlib.suppress(FileNotFoundError):
                    flags = os.O_RDONLY | os.O_CLOEXEC
                    found = os.open(name, flags, dir_fd=folder.descriptor)
        if found is None:
            yield None
            return
        with os.fdopen(found, "rb") as file:
            mark_used(found)
            with contextlib.suppress(OSError):
                yield file

    def _stay_below_limit(self, folder: Folder, written: int) -> None:
        configured = self.config.dir
        assert configured is not None
        unseen = _Process.unseen.get(configured)
        unseen = self.limit if unseen is None else unseen + written
        if self.limit and unseen * _LOOKS_PER_LIMIT >= self.limit:
            shrink(folder.descriptor, self.limit)
            unseen = 0
        _Process.unseen[configured] = unseen

    def _remember(self, problem: str) -> None:
        assert self.config.dir is not None
        _Process.problems[self.config.dir] = problem


def _path(kind: str, key: str) -> str:
    assert _NAME.fullmatch(kind), kind
    assert _NAME.fullmatch(key), key
    return f"{kind}/{key}"


def _write(folder: Folder, kind: str, name: str, data: bytes) -> None:
    mark(folder.descriptor)
    with contextlib.suppress(FileExistsError):
        os.mkdir(kind, 0o700, dir_fd=folder.descriptor)
    write_file(folder.descriptor, name, data)


def _intact(stored: bytes) -> bytes | None:
    """The data of an entry, if they are what was written."""
    expected, data = stored[:_DIGEST_LENGTH], stored[_DIGEST_LENGTH:]
    return data if digest_bytes(data).encode() == expected else None
