"""The threads of a native model: none but the caller's, or the process's pool."""

from __future__ import annotations

from whet.codegen.llvm.poolcode import process_pool
from whet.codegen.llvm.serial import SERIAL_POOL
from whet.core.caching import FileCache


class Threads:
    """What a model's code is linked with to run parallel loops on `count` threads."""

    def __init__(self, count: int, cache: FileCache) -> None:
        self.count = count
        self.pool = process_pool(cache) if count > 1 else None

    @property
    def code(self) -> tuple[str, ...]:
        """Text IR that is compiled into the model."""
        return () if self.pool else (SERIAL_POOL,)

    @property
    def symbols(self) -> dict[str, int]:
        return self.pool.symbols if self.pool else {}

    def apply(self) -> None:
        """Make the pool use this many threads."""
        if self.pool is not None and self.pool.chosen != self.count:
            self.pool.set_threads(self.count)
