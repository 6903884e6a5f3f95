"""The processor that benchmarks build for: this machine, or what WHET_TARGET makes of it."""

from __future__ import annotations

from whet.core.config import process_config
from whet.core.cpu import HERE, CpuTarget, named_target


def measured_target() -> CpuTarget:
    return named_target(process_config().target or HERE)
