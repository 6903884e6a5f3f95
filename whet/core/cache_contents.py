"""Entries of a cache folder: how much they take, when each was last used, and removing them."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from whet.core.cache_folder import NEW

FULL = 0.9
"""To which part of its limit a cache shrinks: so it need not shrink again at the next entry."""
ABANDONED_SECONDS = 86_400
"""A file that has been written for a day belongs to a process that is gone."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of a cache, `kind/name`; its time of change is that of its last use."""

    kind: str
    name: str
    nbytes: int
    used: float

    @property
    def path(self) -> str:
        return f"{self.kind}/{self.name}"

    @property
    def is_unfinished(self) -> bool:
        return self.name.startswith(NEW)


def entries(folder: int) -> Iterator[Entry]:
    """All files in the folders of a cache."""
    for kind in os.listdir(folder):
        with contextlib.suppress(OSError):  # a file beside the folders, or gone meanwhile
            inner = os.open(kind, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            try:
                yield from _files(kind, inner)
            finally:
                os.close(inner)


def _files(kind: str, folder: int) -> Iterator[Entry]:
    with os.scandir(folder) as found:
        for file in found:
            with contextlib.suppress(FileNotFoundError):
                status = file.stat(follow_symlinks=False)
                yield Entry(kind, file.name, status.st_size, status.st_mtime)


def mark_used(descriptor: int) -> None:
    """Notes that an open entry was used now; nothing on a read-only file system."""
    with contextlib.suppress(OSError):
        os.utime(descriptor)


def remove(folder: int, found: Iterable[Entry]) -> tuple[int, int]:
    """Removes entries; how many they were and their bytes.

    What a process has mapped stays in its memory.
    """
    count = nbytes = 0
    for entry in found:
        with contextlib.suppress(FileNotFoundError):  # another process was faster
            os.unlink(entry.path, dir_fd=folder)
            count, nbytes = count + 1, nbytes + entry.nbytes
    return count, nbytes


def shrink(folder: int, limit: int) -> None:
    """Removes what was not used for longest until the rest is well below the limit."""
    known = list(entries(folder))
    abandoned = time.time() - ABANDONED_SECONDS
    remove(folder, (e for e in known if e.is_unfinished and e.used < abandoned))
    kept = sorted((e for e in known if not e.is_unfinished), key=lambda e: e.used)
    remove(folder, surplus(kept, limit))


def surplus(oldest_first: list[Entry], limit: int) -> list[Entry]:
    """The entries that have to go so that the others stay below the limit."""
    total = sum(e.nbytes for e in oldest_first)
    if total <= limit:
        return []
    going: list[Entry] = []
    for entry in oldest_first:
        if total <= limit * FULL:
            break
        going.append(entry)
        total -= entry.nbytes
    return going


def keep_newest(folder: int, kind: str, count: int) -> None:
    """Removes all but the newest files of a kind."""
    found = sorted((e for e in entries(folder) if e.kind == kind), key=lambda e: (e.used, e.name))
    remove(folder, found[:-count])
