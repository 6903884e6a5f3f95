"""The machines that code is made for: this one, and weaker ones that it can stand in for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from whet.api import engine as engine_module
from whet.api.engine import Native
from whet.core.caching import FileCache
from whet.core.target import KIB, PRESETS, Target, detect

_SSE4 = ("sse3", "ssse3", "sse4.1", "sse4.2", "popcnt")
NAMES = ("host", "sse4", "avx2", "avx512", "small-caches", "many-cores")
"""All targets; a graph's number decides which one it gets."""


def find_target(name: str) -> Target:
    """The target of that name."""
    host = detect()
    if name == "sse4":
        return replace(host, name=name, cpu="x86-64-v2", features=_SSE4, vector_bits=128,
                       vector_registers=16)  # fmt: skip
    if name == "avx2":
        return PRESETS["x86-64-v3"]
    if name == "avx512":
        return PRESETS["x86-64-v4"]
    if name == "small-caches":
        return replace(host, name=name, l1d_bytes=4 * KIB, l2_bytes=16 * KIB, l3_bytes=0)
    if name == "many-cores":
        return replace(host, name=name, cores=64)
    assert name == "host", name
    return host


def can_run(name: str) -> bool:
    """Whether this machine has what code for the target uses."""
    host = detect()
    return set(find_target(name).features) <= set(host.features)


@contextmanager
def compiling_for(target: Target, cache: FileCache, *, checked: bool) -> Iterator[None]:
    """`whet.compile` and `whet.load` make code for this target."""
    process = engine_module._Process
    before = process.engine
    process.engine = Native(target, cache, checked)
    try:
        yield
    finally:
        process.engine = before
