"""The GPU of this machine as a target, and whether code for a target runs on it."""

from __future__ import annotations

from functools import cache as cached
from typing import Protocol

from whet.core.errors import UsageError, fail
from whet.core.gpu import OLDEST_GENERATION, PRESETS, GpuTarget

_FIRST_SPECIAL = 9
"""From this generation on, code for an architecture's own instructions is named with an `a`."""


class Device(Protocol):
    """A GPU that can be asked about itself."""

    def name(self) -> str: ...

    def attribute(self, name: str) -> int:
        """A fact by the driver's name for it, 0 if it is not known."""


@cached
def detected_gpu() -> GpuTarget:
    """The first GPU of this machine; `UsageError` if there is none."""
    from whet.codegen.cuda.bindings import cuda_driver

    return described(cuda_driver())


def described(device: Device) -> GpuTarget:
    """The GPU as a target; `UsageError` if it is older than all that code is made for."""
    ask = device.attribute
    major, minor = ask("COMPUTE_CAPABILITY_MAJOR"), ask("COMPUTE_CAPABILITY_MINOR")
    if 10 * major + minor < OLDEST_GENERATION:
        oldest = f"{OLDEST_GENERATION // 10}.{OLDEST_GENERATION % 10}"
        fail("WH1010", f"the GPU here, {device.name()}, has compute capability {major}.{minor}, "
             f"and code is made for {oldest} and later", hint="build for the target cpu",
             kind=UsageError)  # fmt: skip
    architecture = f"sm_{major}{minor}{'a' if major >= _FIRST_SPECIAL else ''}"
    # Rates that a driver does not tell are those of the preset that comes next below.
    older = [p for p in PRESETS.values() if p.generation <= 10 * major + minor]
    like = max(older, key=lambda p: p.generation, default=next(iter(PRESETS.values())))
    # Kilohertz of the memory's clock, at each of which it gives two words.
    bandwidth = 2 * ask("MEMORY_CLOCK_RATE") * ask("GLOBAL_MEMORY_BUS_WIDTH") / 8 / 1e6
    return GpuTarget(
        name=device.name(),
        architecture=architecture,
        processors=ask("MULTIPROCESSOR_COUNT"),
        shared_bytes=ask("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        shared_bytes_per_processor=ask("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
        registers_per_processor=ask("MAX_REGISTERS_PER_MULTIPROCESSOR"),
        threads_per_processor=ask("MAX_THREADS_PER_MULTIPROCESSOR"),
        l2_bytes=ask("L2_CACHE_SIZE"),
        clock_ghz=ask("CLOCK_RATE") / 1e6 or like.clock_ghz,
        memory_gbs=bandwidth or like.memory_gbs,
    )


def missing_here(target: GpuTarget) -> tuple[str, ...]:
    """What code for the target needs and this machine lacks; nothing if it runs here."""
    try:
        found = detected_gpu()
    except UsageError:
        return (f"GPU with {target.architecture}",)
    return () if runs_on(target, found) else (target.architecture,)


def runs_on(target: GpuTarget, device: GpuTarget) -> bool:
    """Whether a GPU executes code for the target: within a generation, later ones execute what
    earlier ones do, but for an architecture's own instructions."""
    if target.architecture[-1].isalpha():
        return target.architecture == device.architecture
    same = target.generation // 10 == device.generation // 10
    return same and target.generation <= device.generation
