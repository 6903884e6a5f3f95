"""The folder that a cache lies in: made by whet, marked, of one user, closed to all others.

A folder that the user has for other things is neither changed nor filled: the cache is then a
subfolder of it.

    WHET_CACHE_DIR=~/.cache/whet   (not there yet)    ->  ~/.cache/whet
    WHET_CACHE_DIR=/tmp            (of others, open)  ->  /tmp/whet-1000

Whoever can write to a cache decides what its user's processes run, hence everything goes through
an open descriptor of a folder whose owner was looked at: nobody can put another one in its place.
"""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path
from typing import NamedTuple

TAG = "CACHEDIR.TAG"
"""Marks the folder as whet's own, and as a cache for programs that make backups."""
TAG_TEXT = b"""Signature: 8a477f597d28d172789f06886806bc55
# Files that whet keeps between runs.  Everything here can be made again: `whet cache clear`.
"""
NEW = ".new-"
"""How files begin that are being written."""

_PRIVATE = 0o700


class CacheRefusedError(Exception):
    """Why a folder cannot be used as a cache."""


class Folder(NamedTuple):
    """An open folder."""

    descriptor: int
    path: Path


def open_folder(configured: Path, *, make: bool) -> Folder | None:
    """The cache's folder; None if it is not there and not to be made.

    Raises `CacheRefusedError`, or OSError where the file system refuses.
    """
    outer = _open(configured)
    if outer is None:
        if not make:
            return None
        _refuse_foreign_home(configured)
        configured.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
        outer = _open(configured)
        assert outer is not None
    if _is_marked(outer) or _is_free(outer):
        return _closed_to_others(outer, configured)
    name = f"whet-{os.geteuid()}"
    try:
        if make:
            _make_inside(name, outer)
        inner = _open(name, outer)
    finally:
        os.close(outer)
    if inner is None:
        return None
    if not (_is_marked(inner) or _is_free(inner) or _is_foreign(inner)):
        os.close(inner)
        raise CacheRefusedError(f"the folder '{configured / name}' holds something else")
    return _closed_to_others(inner, configured / name)


def mark(folder: int) -> None:
    """Marks the folder as whet's own, before anything else is written to it."""
    if not _is_marked(folder):
        write_file(folder, TAG, TAG_TEXT)


def write_file(folder: int, name: str, data: bytes) -> None:
    """Writes a file of the folder (or of one below it) as a whole or not at all."""
    below, _, _ = name.rpartition("/")
    temporary = f"{below}/{NEW}{secrets.token_hex(8)}".lstrip("/")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o600, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        os.unlink(temporary, dir_fd=folder)
        raise


def _open(path: str | Path, inside: int | None = None) -> int | None:
    """A descriptor of a folder, or None; a link is followed only where the user named it."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    try:
        return os.open(path, flags | (os.O_NOFOLLOW if inside is not None else 0), dir_fd=inside)
    except FileNotFoundError:
        return None


def _make_inside(name: str, outer: int) -> None:
    try:
        os.mkdir(name, _PRIVATE, dir_fd=outer)
    except FileExistsError:
        return


def _is_marked(folder: int) -> bool:
    try:
        descriptor = os.open(TAG, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=folder)
    except OSError:
        return False
    with os.fdopen(descriptor, "rb") as file:
        return file.read(len(TAG_TEXT) + 1) == TAG_TEXT


def _is_free(folder: int) -> bool:
    """Whether an unmarked folder is as one that was just made: private, and empty but for a mark
    that another process is about to make."""
    return _is_private(os.fstat(folder)) and all(n.startswith(NEW) for n in os.listdir(folder))


def _is_foreign(folder: int) -> bool:
    return os.fstat(folder).st_uid != os.geteuid()


def _is_private(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid() and not stat.S_IMODE(status.st_mode) & 0o077


def _closed_to_others(folder: int, path: Path) -> Folder:
    """The folder if it is this user's; what others may do in it is taken away from them."""
    try:
        if _is_foreign(folder):
            raise CacheRefusedError(f"the cache folder '{path}' belongs to another user")
        if not _is_private(os.fstat(folder)):
            _close_to_others(folder)
    except BaseException:
        os.close(folder)
        raise
    return Folder(folder, path)


def _close_to_others(folder: int) -> None:
    try:
        os.fchmod(folder, _PRIVATE)
    except OSError:
        # On a read-only file system a folder may be open to readers, and to nobody else.
        if stat.S_IMODE(os.fstat(folder).st_mode) & 0o022:
            raise


def _refuse_foreign_home(path: Path) -> None:
    """Root may write anywhere; in the home of another user (`sudo` keeps HOME) it must not."""
    if os.geteuid() != 0:
        return
    existing = next(p for p in (path, *path.parents) if p.exists())
    if existing.stat().st_uid != 0:
        raise CacheRefusedError(f"the folder '{existing}' belongs to another user")
