"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from whet.core.errors import UsageError, fail


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write into, which takes the name `path` only when the block ends well.

    A reader sees the old content or the new, and a crash leaves at most a stray file whose
    name starts with a dot.
    """
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}.part")
    try:
        # Not tempfile: its files are private (0600), and an artifact should follow the umask.
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except OSError as error:
        fail("WH3006", f"cannot write '{target}': {error.strerror or error}", kind=UsageError)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
