"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from whet.core.errors import UsageError, fail


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write into, which takes the name `path` only when the block ends well.

    A reader sees the old content or the new, and a crash leaves at most a stray file whose
    name starts with a dot.  A link stays one, and so does what is no file: a device or a pipe is
    written to, since nobody who says `-o /dev/null` wants a file in its place.
    """
    try:
        if _is_special(path):
            with Path(path).open("wb") as file:
                yield file
        else:
            with _beside(Path(os.path.realpath(path))) as file:
                yield file
    except OSError as error:
        fail("WH3006", f"cannot write '{path}': {error.strerror or error}", kind=UsageError)


def _is_special(path: str | os.PathLike[str]) -> bool:
    """Whether there is something that is neither a file nor a folder."""
    try:
        mode = Path(path).stat().st_mode
    except FileNotFoundError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


@contextlib.contextmanager
def _beside(target: Path) -> Iterator[BinaryIO]:
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}.part")
    try:
        # Not tempfile: its files are private (0600), and an artifact should follow the umask.
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
