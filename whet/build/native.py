"""A model as native code: segments of kernels, with lone operators between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from whet.build.bodies import with_compiled_bodies
from whet.build.executable import LoneStep, NativeExecutable, NativeStep
from whet.build.image import SegmentImage, load_image, store_image
from whet.build.keys import build_key
from whet.build.refusals import load_refusals, store_refusals
from whet.build.segment import ForeignSegment, NativeSegment
from whet.build.threads import Threads
from whet.codegen.llvm.linking import require_symbols
from whet.core.caching import FileCache
from whet.core.config import CacheConfig, process_config
from whet.core.cpu import CpuTarget
from whet.core.foreign import missing_here
from whet.graph.graph import Graph, Node
from whet.graph.passes.expand_composites import expand_composites
from whet.ops.base import Numeric
from whet.tasks.pieces import NativePiece, cut

if TYPE_CHECKING:
    from whet.build.kernels import Schedule
    from whet.tasks.price import Evidence

NO_CACHE = FileCache(CacheConfig(enabled=False))


def build(
    graph: Graph,
    target: CpuTarget,
    threads: int,
    cache: FileCache | None = None,
    *,
    numerics: Numeric = "real",
    schedule: Schedule | None = None,
    schedule_key: str = "",
    evidence: Evidence | None = None,
    checked: bool = False,
) -> NativeExecutable:
    """The graph as native code for the target, from the cache if it has been built before.

    It can be called if this machine has what the target needs.
    `numerics="exact"` leaves out algorithms that are equal only over the reals.  With a
    schedule of one's own instead of the default, what is built is kept only under a
    `schedule_key` that tells it from others; `evidence` says which of two partitions was measured
    to be faster.  With `checked`, an access outside a buffer ends the process with a message.
    """
    cache = cache or FileCache(process_config().cache)
    builder = _Builder(target, threads, cache, numerics, schedule, schedule_key, evidence, checked)
    return builder.build(graph)


class _Builder:
    """Builds graphs that share a target."""

    def __init__(
        self,
        target: CpuTarget,
        threads: int,
        cache: FileCache,
        numerics: Numeric,
        schedule: Schedule | None,
        schedule_key: str,
        evidence: Evidence | None,
        checked: bool,
    ) -> None:
        self.checked = checked
        self.target, self.threads, self.numerics = target, Threads(threads, cache), numerics
        self.missing = missing_here(target)
        self.cache = cache if schedule is None or schedule_key else NO_CACHE
        self.schedule, self.schedule_key, self.evidence = schedule, schedule_key, evidence

    def build(self, graph: Graph) -> NativeExecutable:
        options = (str(self.threads.count), self.numerics, str(self.checked), self.schedule_key)
        key = build_key(graph, self.target, *options)
        graph = expand_composites(graph)
        refused = load_refusals(self.cache, key, graph)
        found = None if refused is None else self.from_cache(key, graph, refused)
        return found or self.anew(key, graph)

    def from_cache(
        self, key: str, graph: Graph, reasons: Mapping[Node, str]
    ) -> NativeExecutable | None:
        """The executable if the cache has all its segments."""
        steps: list[NativeStep | LoneStep] = []
        for number, piece in enumerate(cut(graph, lambda node: node not in reasons)):
            if isinstance(piece, NativePiece):
                image = load_image(self.cache, f"{key}-{number}")
                if image is None:
                    return None
                segment = self.segment(image, piece.graph)
                steps.append(NativeStep(segment, piece.inputs, piece.outputs))
            else:
                steps.append(self.lone(piece.node))
        return NativeExecutable(graph, tuple(steps), reasons)

    def anew(self, key: str, graph: Graph) -> NativeExecutable:
        # The compiler proper: not needed, and not loaded, when the cache has everything.
        from whet.build.assemble import assemble
        from whet.build.kernels import KernelMaker
        from whet.codegen.llvm.support import has_code
        from whet.schedule.prices import AnalyticPrice
        from whet.tasks.plan import plan_graph
        from whet.tasks.price import no_evidence

        evidence = self.evidence or no_evidence
        price = AnalyticPrice(self.target, self.threads.count, self.numerics, evidence)
        schedule = self.schedule or price.kernel
        maker = KernelMaker(self.target, schedule, self.numerics, checked=self.checked)
        plan = plan_graph(graph, price, has_code)
        steps: list[NativeStep | LoneStep] = []
        for number, piece in enumerate(plan.pieces):
            if isinstance(piece, NativePiece):
                image = assemble(plan.plans[piece], maker, self.threads.code, self.cache)
                image = store_image(image, self.cache, f"{key}-{number}")
                segment = self.segment(image, piece.graph)
                steps.append(NativeStep(segment, piece.inputs, piece.outputs))
            else:
                steps.append(self.lone(piece.node))
        store_refusals(self.cache, key, graph, plan.reasons)
        return NativeExecutable(graph, tuple(steps), plan.reasons)

    def segment(self, image: SegmentImage, graph: Graph) -> NativeSegment | ForeignSegment:
        if self.missing:
            require_symbols(image.objects, self.threads.symbols)
            return ForeignSegment(image, self.target, self.missing)
        return NativeSegment(image, graph, self.threads)

    def lone(self, node: Node) -> LoneStep:
        return LoneStep(with_compiled_bodies(node, self.build), node)
