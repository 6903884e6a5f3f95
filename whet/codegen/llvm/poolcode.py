"""The process's thread pool: its code is compiled once per machine and loaded once per process."""

from __future__ import annotations

import threading

import llvmlite.binding as llvm

from whet.codegen.llvm.compile import Library, emit_object, host_cpu
from whet.codegen.llvm.pool import pool_ir
from whet.core.caching import FileCache
from whet.core.config import process_config
from whet.core.digest import digest_text
from whet.runtime.pool import FUNCTIONS, ThreadPool

_CACHE_KIND = "object"


class _Process:
    """What this process has loaded.  Two pools would compete for the same cores."""

    lock = threading.Lock()
    pool: ThreadPool | None = None
    library: Library | None = None


def process_pool(cache: FileCache) -> ThreadPool:
    """The pool of this process; the first call loads it, with one thread.

    `pool.symbols` is what a `Library` of kernels is linked with.
    """
    with _Process.lock:
        if _Process.pool is None:
            _Process.library = Library([pool_object(cache)])
            addresses = {name: _Process.library.address(name) for name in FUNCTIONS}
            _Process.pool = ThreadPool(addresses, pin=process_config().pin)
        return _Process.pool


def pool_object(cache: FileCache) -> bytes:
    """The pool's code for this machine, from the cache if it is there."""
    ir = pool_ir(llvm.get_default_triple().split("-")[0])
    cpu, features = host_cpu()
    version = ".".join(map(str, llvm.llvm_version_info))
    key = digest_text(ir, cpu, features, version)
    stored = cache.get(_CACHE_KIND, key)
    if stored is not None:
        return stored
    made = emit_object(ir, cpu, features)
    cache.put(_CACHE_KIND, key, made)
    return made
