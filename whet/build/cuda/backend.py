"""The backend for NVIDIA GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from whet.build.backend import Assembler, Backend
from whet.core.caching import FileCache
from whet.core.dtypes import DType
from whet.core.errors import UsageError
from whet.core.gpu import HERE, PRESETS, TARGET_NAMES, GpuTarget, gpu_from_fields
from whet.ops.base import Numeric
from whet.runtime.executable import Adopted

if TYPE_CHECKING:
    from whet.codegen.cuda.generator import CudaGenerator
    from whet.measure.cuda.runner import CudaRunner
    from whet.measure.networks import TimedNetwork
    from whet.measure.runner import Runner
    from whet.schedule.gpu_prices import GpuPrice
    from whet.tasks.price import Evidence
    from whet.tasks.steps import Plan


class CudaBackend(Backend[GpuTarget]):
    """CUDA C++ through NVRTC, and the driver, both imported where they are needed."""

    kind: ClassVar[str] = GpuTarget.kind
    can_tune: ClassVar[bool] = True
    times_networks: ClassVar[bool] = True

    @property
    def names(self) -> tuple[str, ...]:
        return TARGET_NAMES

    def named_target(self, name: str) -> GpuTarget:
        from whet.codegen.cuda.nvrtc import nvrtc_version

        nvrtc_version()  # says what is missing, before anything else is done in vain
        if name != HERE:
            return PRESETS[name]
        from whet.build.cuda.detect import detected_gpu

        return detected_gpu()

    def read_target(self, fields: Mapping[str, Any]) -> GpuTarget:
        return gpu_from_fields(fields)

    def in_precision(self, target: GpuTarget, precision: str) -> GpuTarget:
        return replace(target, precision=precision)

    def describe(self, target: GpuTarget) -> list[str]:
        return [str(target)]

    def unavailable(self) -> str | None:
        from whet.codegen.cuda.nvrtc import why_unavailable

        return why_unavailable()

    def missing_here(self, target: GpuTarget) -> tuple[str, ...]:
        from whet.build.cuda.detect import missing_here

        return missing_here(target)

    def used_threads(self, threads: int) -> int:
        return 1

    def holds(self, dtype: DType) -> bool:
        from whet.codegen.cuda.support import has_code

        return has_code(dtype)

    def price(
        self,
        target: GpuTarget,
        threads: int,
        numerics: Numeric,
        evidence: Evidence,
        weight_bytes: int | None = None,
    ) -> GpuPrice:
        from whet.schedule.gpu_prices import GpuPrice

        return GpuPrice(target, numerics, evidence)

    def generator(self, target: GpuTarget) -> CudaGenerator:
        from whet.codegen.cuda.generator import CudaGenerator

        return CudaGenerator(target)

    def adopt(self, values: Sequence[Any], names: Sequence[str]) -> Sequence[Adopted | None]:
        from whet.build.cuda.foreign_arrays import adopted
        from whet.codegen.cuda.bindings import cuda_driver

        try:
            driver = cuda_driver()
        except UsageError:
            return [None] * len(values)  # where no GPU is, nothing lies on one
        return adopted(values, names, driver)

    def assembler(self, target: GpuTarget, threads: int, cache: FileCache) -> Assembler:
        from whet.build.cuda.segments import CudaAssembler

        return CudaAssembler(target)

    def runner(self) -> CudaRunner:
        from whet.measure.cuda.runner import CudaRunner

        return CudaRunner()

    def timed_network(
        self,
        plan: Plan,
        target: GpuTarget,
        numerics: Numeric,
        runner: Runner[GpuTarget],
        cache: FileCache,
    ) -> TimedNetwork:
        from whet.build.cuda.timed import CudaNetwork
        from whet.measure.cuda.runner import CudaRunner

        assert isinstance(runner, CudaRunner)
        return CudaNetwork(plan, target, numerics, self.generator(target), runner, cache)
