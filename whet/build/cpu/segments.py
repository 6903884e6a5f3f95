"""Segments of machine code: made from plans, kept in the cache, and loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whet.build.cpu.image import SegmentImage, load_image, store_image
from whet.build.cpu.segment import ForeignSegment, NativeSegment
from whet.build.cpu.threads import Threads
from whet.codegen.llvm.linking import require_symbols
from whet.core.caching import FileCache
from whet.core.cpu import CpuTarget
from whet.core.foreign import missing_here
from whet.graph.graph import Graph

if TYPE_CHECKING:
    from whet.build.kernels import KernelMaker
    from whet.tasks.steps import Plan


class CpuAssembler:
    """Makes segments for a CPU; see `whet.build.backend.Assembler`."""

    def __init__(self, target: CpuTarget, threads: int, cache: FileCache) -> None:
        self.target, self.threads = target, Threads(threads, cache)
        self.missing = missing_here(target)

    def assemble(
        self, plan: Plan, maker: KernelMaker, cache: FileCache, key: str
    ) -> NativeSegment | ForeignSegment:
        # The compiler proper: not needed, and not loaded, when the cache has everything.
        from whet.build.cpu.assemble import assemble

        image = assemble(plan, maker, self.threads.code, cache)
        return self._segment(store_image(image, cache, key), plan.graph)

    def load(
        self, graph: Graph, cache: FileCache, key: str
    ) -> NativeSegment | ForeignSegment | None:
        image = load_image(cache, key)
        return None if image is None else self._segment(image, graph)

    def _segment(self, image: SegmentImage, graph: Graph) -> NativeSegment | ForeignSegment:
        if self.missing:
            require_symbols(image.objects, self.threads.symbols)
            return ForeignSegment(image, self.target, self.missing)
        return NativeSegment(image, graph, self.threads)
