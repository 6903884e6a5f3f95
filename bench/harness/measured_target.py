"""The processor that benchmarks build for: this machine, or what WHET_TARGET makes of it."""

from __future__ import annotations

from whet.core.config import process_config
from whet.core.target import HERE, Target, named_target


def measured_target() -> Target:
    return named_target(process_config().target or HERE)
