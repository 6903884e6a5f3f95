"""The machines that code is made for: this one, and weaker ones that it can stand in for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from tools.cuda_on_cpu.backend import gpu_in_this_process
from tools.cuda_on_cpu.compiled import lacking
from whet.api import engines as engines_module
from whet.api.native import Native
from whet.core.caching import FileCache
from whet.core.cpu import HERE, KIB, CpuTarget, detect, named_target
from whet.core.gpu import PRESETS
from whet.core.precision import STRICT
from whet.core.target import Target

GPUS = tuple(PRESETS)
"""GPUs whose text is run here, thread by thread: slowly, so they have to be asked for."""
NAMES = (HERE, "x86-64-v2", "x86-64-v3", "x86-64-v4", "small-caches", "many-cores")
"""All other targets; a graph's number decides which one it gets."""


def find_target(name: str) -> Target:
    """The target of that name."""
    return PRESETS[name] if name in GPUS else find_cpu(name)


def find_cpu(name: str) -> CpuTarget:
    """The CPU of that name."""
    if name == "small-caches":
        return replace(detect(), l1d_bytes=4 * KIB, l2_bytes=16 * KIB, l3_bytes=0)
    if name == "many-cores":
        return replace(detect(), cores=64)
    return named_target(name)


def can_run(name: str) -> bool:
    """Whether this machine has what code for the target uses."""
    if name in GPUS:
        return lacking() is None
    target, here = find_cpu(name), detect()
    return target.triple == here.triple and set(target.features) <= set(here.features)


def public_name(name: str) -> str:
    """What `whet.compile` calls the target: other caches and cores make no other machine."""
    return HERE if name in ("small-caches", "many-cores") else name


@contextmanager
def compiling_for(name: str, cache: FileCache, *, checked: bool) -> Iterator[None]:
    """`whet.compile` and `whet.load` make code for this target, kept in this cache."""
    engines = engines_module._Process.engines
    before = dict(engines)
    on_gpu = name in GPUS
    engines[public_name(name)] = {STRICT: Native(find_target(name), cache, checked and not on_gpu)}
    try:
        with ExitStack() as stack:
            if on_gpu:
                stack.enter_context(gpu_in_this_process(checked=True))
            yield
    finally:
        engines.clear()
        engines.update(before)
