"""Segments of a GPU: made from plans, kept in the cache, and loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whet.build.cuda.detect import missing_here
from whet.build.cuda.image import CudaImage, load_image, store_image
from whet.build.cuda.segment import CudaSegment, ForeignSegment
from whet.codegen.cuda.driver import Driver
from whet.core.caching import FileCache
from whet.core.gpu import GpuTarget
from whet.graph.graph import Graph

if TYPE_CHECKING:
    from whet.build.kernels import KernelMaker
    from whet.tasks.steps import Plan


class CudaAssembler:
    """Makes segments for a GPU; see `whet.build.backend.Assembler`."""

    def __init__(self, target: GpuTarget, driver: Driver | None = None) -> None:
        self.target, self.driver = target, driver
        """Of `driver`: that of this machine if there is none."""
        self.missing = missing_here(target) if driver is None else ()

    def assemble(
        self, plan: Plan, maker: KernelMaker, cache: FileCache, key: str
    ) -> CudaSegment | ForeignSegment:
        # The compiler proper: not needed, and not loaded, when the cache has everything.
        from whet.build.cuda.assemble import assemble

        image = assemble(plan, maker, cache)
        store_image(image, cache, key)
        return self._segment(image, plan.graph)

    def load(self, graph: Graph, cache: FileCache, key: str) -> CudaSegment | ForeignSegment | None:
        image = load_image(cache, key)
        return None if image is None else self._segment(image, graph)

    def _segment(self, image: CudaImage, graph: Graph) -> CudaSegment | ForeignSegment:
        if self.missing:
            return ForeignSegment(image, self.target, self.missing)
        return CudaSegment(image, graph, self._driver(), early=self.target.has_dependent_launch)

    def _driver(self) -> Driver:
        if self.driver is None:
            from whet.codegen.cuda.bindings import cuda_driver

            self.driver = cuda_driver()
        return self.driver
