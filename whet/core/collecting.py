"""The garbage collector held back while many small objects are made that stay.

Expressions and plans have no cycles to be found, and every collection walks all that there are.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collection() -> Iterator[None]:
    """Runs the block without collections, unless the program does without them anyway."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
