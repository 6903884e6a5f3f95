"""The backend for CPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from whet.build.backend import Assembler, Backend
from whet.core.caching import FileCache
from whet.core.constants import CONSTANTS
from whet.core.cpu import (
    TARGET_NAMES,
    CpuTarget,
    cpu_from_fields,
    named_target,
    remember,
    with_measured,
)
from whet.core.dtypes import DType
from whet.core.errors import UsageError, check
from whet.core.foreign import is_this_machine, missing_here
from whet.ops.base import Numeric

if TYPE_CHECKING:
    from whet.codegen.llvm.generator import LlvmGenerator
    from whet.measure.cpu.measurer import Measurer
    from whet.schedule.prices import AnalyticPrice
    from whet.tasks.price import Evidence


class CpuBackend(Backend[CpuTarget]):
    """Machine code through LLVM, which is imported where it is needed."""

    kind: ClassVar[str] = CpuTarget.kind
    can_tune: ClassVar[bool] = True
    constants: ClassVar[tuple[str, ...]] = tuple(CONSTANTS)

    @property
    def names(self) -> tuple[str, ...]:
        return TARGET_NAMES

    def named_target(self, name: str) -> CpuTarget:
        return named_target(name)

    def read_target(self, fields: Mapping[str, Any]) -> CpuTarget:
        return cpu_from_fields(fields)

    def known_target(self, target: CpuTarget, cache: FileCache) -> CpuTarget:
        return with_measured(target, cache)

    def calibrated(
        self,
        target: CpuTarget,
        cache: FileCache,
        note: Callable[[str], None] | None = None,
        *,
        again: bool = False,
    ) -> CpuTarget:
        if again:
            check(is_this_machine(target), "WH1002",
                  f"'{target.name}' is not this machine and cannot be measured",
                  kind=UsageError)  # fmt: skip
            check(cache.keeps, "WH1002", "there is no cache to keep measurements in",
                  *([cache.problem] if cache.problem else []),
                  hint="set WHET_CACHE_ENABLED=1, and WHET_CACHE_DIR to a folder of your own",
                  kind=UsageError)  # fmt: skip
            target = replace(target, calibration={})
            remember(target, cache)
        if target.is_calibrated:
            return target
        from whet.build.cpu.calibrate import calibrated_target

        return calibrated_target(target, cache, note)

    def describe(self, target: CpuTarget) -> list[str]:
        constants = [
            f"{name:25}{target.constant(name):>8.4g}  {target.origin(name):9} {constant.meaning}"
            for name, constant in CONSTANTS.items()
        ]
        features = " ".join(target.features)
        return [str(target), f"{target.triple}, {target.cpu}, {features}", "", *constants]

    def unavailable(self) -> str | None:
        from whet.codegen.llvm.installed import why_unavailable

        return why_unavailable()

    def missing_here(self, target: CpuTarget) -> tuple[str, ...]:
        return missing_here(target)

    def holds(self, dtype: DType) -> bool:
        from whet.codegen.llvm.support import has_code

        return has_code(dtype)

    def price(
        self,
        target: CpuTarget,
        threads: int,
        numerics: Numeric,
        evidence: Evidence,
        weight_bytes: int | None = None,
    ) -> AnalyticPrice:
        from whet.schedule.prices import AnalyticPrice

        return AnalyticPrice(target, threads, numerics, evidence, weight_bytes)

    def generator(self, target: CpuTarget) -> LlvmGenerator:
        from whet.codegen.llvm.generator import LlvmGenerator

        return LlvmGenerator(target)

    def assembler(self, target: CpuTarget, threads: int, cache: FileCache) -> Assembler:
        from whet.build.cpu.segments import CpuAssembler

        return CpuAssembler(target, threads, cache)

    def runner(self) -> Measurer:
        from whet.measure.cpu.measurer import Measurer

        return Measurer()
