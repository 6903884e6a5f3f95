"""A cache of files, addressed by the content that they were made from.

The folder belongs to one user and nobody else may read it.  An entry is written beside its
place and renamed, so that readers see all of it or nothing; it starts with the digest of its
contents, so that a damaged one is found out and counts as absent.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from whet.core.config import CacheConfig
from whet.core.digest import digest_bytes
from whet.core.errors import UsageError, check
from whet.core.types import Array

_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
_DIGEST_LENGTH = len(digest_bytes())


@dataclass(frozen=True, slots=True)
class FileCache:
    """Bytes by kind and key.

    A cache is a convenience: when the disk is full or read-only, `put` stores nothing and
    `get` finds nothing.  A folder of another user is refused, because whoever writes it
    decides what this process later runs.
    """

    config: CacheConfig

    def get(self, kind: str, key: str) -> bytes | None:
        """What was stored under the key; None if nothing was, or it is damaged."""
        if not self.config.enabled or not self.config.dir.exists():
            return None
        _check_private(self.config.dir)
        try:
            stored = self._path(kind, key).read_bytes()
        except OSError:
            return None
        expected, data = stored[:_DIGEST_LENGTH], stored[_DIGEST_LENGTH:]
        return data if digest_bytes(data).encode() == expected else None

    def put(self, kind: str, key: str, data: bytes) -> None:
        """Store the data; an entry with the same key is replaced at once and as a whole."""
        if not self.config.enabled:
            return
        path = self._path(kind, key)
        with contextlib.suppress(OSError):
            self.config.dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            _check_private(self.config.dir)
            path.parent.mkdir(mode=0o700, exist_ok=True)
            _write_atomically(path, digest_bytes(data).encode() + data)

    def map(self, kind: str, key: str) -> Array | None:
        """The bytes that were stored under the key, in memory only as far as they are read.

        Nothing is checked but that there is an entry: whoever maps data knows a checksum.
        """
        if not self.config.enabled or not self.config.dir.exists():
            return None
        _check_private(self.config.dir)
        try:
            return np.memmap(self._path(kind, key), np.uint8, "r", _DIGEST_LENGTH)
        except (OSError, ValueError):  # ValueError: an empty or shortened file
            return None

    def _path(self, kind: str, key: str) -> Path:
        assert _NAME.fullmatch(kind), kind
        assert _NAME.fullmatch(key), key
        return self.config.dir / kind / key


def _write_atomically(path: Path, data: bytes) -> None:
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _check_private(folder: Path) -> None:
    """The folder is this user's; access for others is taken away if there is any."""
    status = folder.stat()
    check(
        status.st_uid == os.geteuid(),
        "WH1002",
        f"the cache folder '{folder}' belongs to another user",
        hint="set WHET_CACHE_DIR to a folder of your own",
        kind=UsageError,
    )
    if stat.S_IMODE(status.st_mode) & 0o077:
        folder.chmod(0o700)
