"""A model as native code: segments of kernels, with lone operators between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from whet.build.backend import backend_of
from whet.build.bodies import with_compiled_bodies
from whet.build.executable import NativeExecutable
from whet.build.keys import build_key
from whet.build.refusals import load_refusals, store_refusals
from whet.build.steps import LoneStep, NativeStep, Step
from whet.core.caching import FileCache
from whet.core.config import CacheConfig, process_config
from whet.core.target import Target
from whet.graph.graph import Graph, Node
from whet.graph.passes.expand_composites import expand_composites
from whet.ops.base import Numeric
from whet.tasks.pieces import NativePiece, cut

if TYPE_CHECKING:
    from whet.build.kernels import Schedule
    from whet.tasks.price import Evidence
    from whet.tasks.steps import Plan

NO_CACHE = FileCache(CacheConfig(enabled=False))


def build(
    graph: Graph,
    target: Target,
    threads: int,
    cache: FileCache | None = None,
    *,
    numerics: Numeric = "real",
    schedule: Schedule | None = None,
    schedule_key: str = "",
    in_plan: Callable[[str], Schedule] | None = None,
    evidence: Evidence | None = None,
    checked: bool = False,
) -> NativeExecutable:
    """The graph as native code for the target, from the cache if it has been built before.

    It can be called if this machine has what the target needs.
    `numerics="exact"` leaves out algorithms that are equal only over the reals.  With a
    schedule of one's own instead of the default, what is built is kept only under a
    `schedule_key` that tells it from others; `in_plan` gives the schedule of a plan, by its key,
    where kernels were chosen for it; `evidence` says which of two partitions was measured to be
    faster.  With `checked`, an access outside a buffer ends the process with a message.
    """
    cache = cache or FileCache(process_config().cache)
    builder = _Builder(
        target, threads, cache, numerics, schedule, schedule_key, in_plan, evidence, checked
    )
    return builder.build(graph)


class _Builder:
    """Builds graphs that share a target."""

    def __init__(
        self,
        target: Target,
        threads: int,
        cache: FileCache,
        numerics: Numeric,
        schedule: Schedule | None,
        schedule_key: str,
        in_plan: Callable[[str], Schedule] | None,
        evidence: Evidence | None,
        checked: bool,
    ) -> None:
        self.target, self.threads, self.numerics = target, threads, numerics
        self.schedule, self.in_plan = schedule, in_plan
        self.evidence, self.checked = evidence, checked
        self.cache = cache if schedule is None or schedule_key else NO_CACHE
        self.options = (str(threads), numerics, str(checked), schedule_key)
        self.backend = backend_of(target)
        self.assembler = self.backend.assembler(target, threads, cache)

    def build(self, graph: Graph) -> NativeExecutable:
        key = build_key(graph, self.target, *self.options)
        graph = expand_composites(graph)
        refused = load_refusals(self.cache, key, graph)
        found = None if refused is None else self.from_cache(key, graph, refused)
        return found or self.anew(key, graph)

    def from_cache(
        self, key: str, graph: Graph, reasons: Mapping[Node, str]
    ) -> NativeExecutable | None:
        """The executable if the cache has all its segments."""
        steps: list[Step] = []
        for number, piece in enumerate(cut(graph, lambda node: node not in reasons)):
            if isinstance(piece, NativePiece):
                segment = self.assembler.load(piece.graph, self.cache, f"{key}-{number}")
                if segment is None:
                    return None
                steps.append(NativeStep(segment, piece.inputs, piece.outputs))
            else:
                steps.append(self.lone(piece.node))
        return NativeExecutable(graph, tuple(steps), reasons)

    def anew(self, key: str, graph: Graph) -> NativeExecutable:
        # The compiler proper: not needed, and not loaded, when the cache has everything.
        from whet.build.kernels import KernelMaker
        from whet.tasks.plan import plan_graph
        from whet.tasks.price import no_evidence

        backend, evidence = self.backend, self.evidence or no_evidence
        price = backend.price(
            self.target, self.threads, self.numerics, evidence, graph.constant_bytes
        )
        usual, generator = self.schedule or price.kernel, backend.generator(self.target)
        makers: dict[Schedule, KernelMaker] = {}  # equal kernels are made once for all segments

        def maker_of(made: Plan) -> KernelMaker:
            schedule = usual if self.in_plan is None else self.in_plan(made.key)
            if schedule not in makers:
                makers[schedule] = KernelMaker(
                    generator, schedule, self.numerics, checked=self.checked
                )
            return makers[schedule]

        plan = plan_graph(graph, price, backend.holds)
        steps: list[Step] = []
        for number, piece in enumerate(plan.pieces):
            if isinstance(piece, NativePiece):
                made, place = plan.plans[piece], f"{key}-{number}"
                segment = self.assembler.assemble(made, maker_of(made), self.cache, place)
                steps.append(NativeStep(segment, piece.inputs, piece.outputs))
            else:
                steps.append(self.lone(piece.node))
        store_refusals(self.cache, key, graph, plan.reasons)
        return NativeExecutable(graph, tuple(steps), plan.reasons)

    def lone(self, node: Node) -> LoneStep:
        return LoneStep(with_compiled_bodies(node, self.build), node)
