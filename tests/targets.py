"""The target that tests build for: this machine, or as much of it as WHET_TARGET allows."""

from __future__ import annotations

import pytest

from tests.skips import ANOTHER_PROCESSOR
from tools.cuda_on_cpu.compiled import lacking
from whet.api.engines import target_name
from whet.build.backend import require_here
from whet.core.cpu import PRESETS, CpuTarget, named_target
from whet.core.foreign import missing_here

HOST = named_target(target_name(None))
require_here(HOST)

LEVELS = [name for name, level in PRESETS.items() if not missing_here(level)]
"""Presets that this machine can stand in for."""
FOREIGN = next(name for name, level in PRESETS.items() if missing_here(level))
"""A preset that it cannot."""


def skip_unless_it_runs_here(target: CpuTarget) -> None:
    if missing_here(target):
        pytest.skip(f"{ANOTHER_PROCESSOR}{target.name}")


needs_text_runner = pytest.mark.skipif(
    lacking() is not None,
    reason=f"{ANOTHER_PROCESSOR}an NVIDIA GPU, or in its place a {lacking()}",
)
"""For tests that run CUDA text on this CPU."""
