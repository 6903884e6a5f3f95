"""The graph that a model is compiled from: the cheapest that proved rewrites lead to.

    graph   ->   plan, price; operators of the whole graph put together, slices moved;
                 blocks searched, each kind once; seams searched again   ->   cheaper graph

Every accepted graph was planned and priced as a whole: a block that seemed cheaper by itself counts
only if the model is.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from whet.graph.graph import Graph, Value
from whet.joint.blocks import SMALLEST, Block, Form, cut_blocks, form_of, transplanted
from whet.joint.checking import check_part
from whet.joint.far import far_steps
from whet.joint.moves import Moves
from whet.joint.pricing import Whole, part_price, plan_whole
from whet.joint.saturation.engine import saturated_search
from whet.joint.saturation.surrogate import Alone
from whet.joint.search import ALPHA, ENGINES, Budget, Engine, Found, backtrack
from whet.superopt.apply.match import Matcher
from whet.superopt.apply.rewrite import CycleError, Part, Rewrite, applied
from whet.superopt.saturate.saturation import Limits
from whet.tasks.layout import ChooseLayouts, choose_layouts
from whet.tasks.plan import Holds
from whet.tasks.price import Price

WORTHWHILE = 0.005
"""A graph is taken if it is cheaper by this share: less than that is noise of the prices."""
STATES = 400
"""States of one block in one pass."""


CHECKED_SECONDS = 1e-3
"""Blocks that are expected to take longer are not compared on numbers within a short search: NumPy
takes some hundred times as long."""


LONG_SEARCH = 10.0
"""Seconds from which on a search uses all engines: saturation needs some for every block."""


def engines_for(seconds: float) -> tuple[Engine, ...]:
    """The engines of a search of this time."""
    return ENGINES if seconds >= LONG_SEARCH else ENGINES[:1]


@dataclass(frozen=True, eq=False)
class Applied:
    """Rewrites that were taken together, with the price of the model before and after."""

    rewrites: tuple[Rewrite, ...]
    times: int
    """The number of blocks that they were used in."""
    before: float
    after: float
    outputs: tuple[Value, ...]
    """The outputs of the model after them."""
    engine: Engine = "backtracking"

    @property
    def rules(self) -> dict[str, int]:
        """The rules, each with the number of times that one block uses it."""
        return dict(Counter(r.rule for r in self.rewrites))


@dataclass(frozen=True, eq=False)
class Searched:
    """The best graph found for a form, the rewrites behind it, and who found it."""

    form: Form
    part: Part
    rewrites: tuple[Rewrite, ...]
    engine: Engine


@dataclass(frozen=True, eq=False)
class Improved:
    """The result of a search: what the outputs became, over the inputs and constants of the graph
    and constants computed from them."""

    outputs: tuple[Value, ...]
    before: float
    after: float
    applied: tuple[Applied, ...]
    states: int


class Superoptimizer:
    """One search on one graph."""

    def __init__(
        self,
        price: Price,
        holds: Holds,
        matcher: Callable[[], Matcher | None],
        seconds: float,
        alpha: float = ALPHA,
        checked: float = CHECKED_SECONDS,
        engines: tuple[Engine, ...] = ("backtracking",),
        layouts: ChooseLayouts = choose_layouts,
    ) -> None:
        self.price, self.holds, self.alpha, self.checked = price, holds, alpha, checked
        self.matcher, self.engines, self.layouts = matcher, engines, layouts
        self.alone = Alone(price)
        self.until = time.perf_counter() + seconds
        self.states = 0
        self.log: list[Applied] = []

    @property
    def left(self) -> float:
        return self.until - time.perf_counter()

    def run(self, graph: Graph, least: float = 0.0) -> Improved | None:
        """The best graph; None if the graph has no price, or one of less than `least` seconds."""
        first = whole = plan_whole(graph, self.price, self.holds, self.layouts)
        if first is None or whole is None or first.seconds < least:
            return None
        whole = self._whole_graph(whole)
        moves = Moves(self.matcher())
        searched: dict[object, Searched | None] = {}
        for shift in (0, SMALLEST // 2, SMALLEST):
            if self.left <= 0:
                break
            whole = self._blocks(whole, shift, moves, searched)
        return Improved(
            whole.graph.outputs, first.seconds, whole.seconds, tuple(self.log), self.states
        )

    # ------------------------------------------------------------------------- the whole graph
    def _whole_graph(self, whole: Whole) -> Whole:
        """Slices moved to where they cost least, and products of all steps of a recurrence."""
        while self.left > 0:
            better = self._better(whole, far_steps(whole.graph))
            if better is None:
                return whole
            whole = better
        return whole

    def _better(
        self, whole: Whole, steps: Sequence[tuple[tuple[Rewrite, ...], Part]]
    ) -> Whole | None:
        """The cheapest of the graphs, if it is cheaper than the present one."""
        best: Whole | None = None
        taken: tuple[Rewrite, ...] = ()
        for rewrites, part in steps:
            if self.left <= 0:
                break
            planned = self._planned(whole.graph, part.outputs)
            if planned is not None and planned.seconds < (best or whole).seconds:
                best, taken = planned, rewrites
        if best is None or best.seconds > (1 - WORTHWHILE) * whole.seconds:
            return None
        self.log.append(Applied(taken, 1, whole.seconds, best.seconds, best.graph.outputs))
        return best

    def _planned(self, graph: Graph, outputs: Sequence[Value]) -> Whole | None:
        self.states += 1
        made = Graph(graph.inputs, tuple(outputs), graph.output_names, graph.names)
        return plan_whole(made, self.price, self.holds, self.layouts)

    # ------------------------------------------------------------------------------- its blocks
    def _blocks(
        self,
        whole: Whole,
        shift: int,
        moves: Moves,
        searched: dict[object, Searched | None],
    ) -> Whole:
        blocks = cut_blocks(whole, shift)
        forms = [form_of(block.part, block.places) for block in blocks]
        kinds = {form.key: n for n, form in reversed(list(enumerate(forms)))}
        new = [n for key, n in kinds.items() if key not in searched]
        for done, n in enumerate(sorted(new, key=lambda n: -len(blocks[n].part.nodes))):
            if self.left <= 0:
                break
            share = self.left / (len(new) - done)
            searched[forms[n].key] = self._search(blocks[n], forms[n], moves, share)
        for key in kinds:
            found = searched.get(key)
            if found is None:
                continue
            same = [n for n, f in enumerate(forms) if f.key == key]
            rebuilt = Part(whole.graph.inputs, whole.graph.outputs)
            steps = [
                Rewrite(
                    "block",
                    "real",
                    blocks[n].given,
                    transplanted(found.part, found.form, forms[n], blocks[n]),
                )
                for n in same
            ]
            try:
                outputs = applied(rebuilt, steps).outputs
            except CycleError:
                continue
            planned = self._planned(whole.graph, outputs)
            if planned is None or planned.seconds > (1 - WORTHWHILE) * whole.seconds:
                continue
            self.log.append(
                Applied(
                    found.rewrites, len(same), whole.seconds, planned.seconds, outputs, found.engine
                )
            )
            # Blocks behind this one have been rebuilt: they are cut out again in the next round.
            return self._blocks(planned, shift, moves, searched) if self.left > 0 else planned
        return whole

    def _search(self, block: Block, form: Form, moves: Moves, seconds: float) -> Searched | None:
        found = [self._run(e, block, moves, seconds / len(self.engines)) for e in self.engines]
        self.states += sum(f.states for f in found)
        best = min(found, key=lambda f: f.best.seconds)
        if best.best is best.first:
            return None
        if best.first.seconds <= self.checked:
            check_part(block.part, best.best.part, ", ".join(r.rule for r in best.best.path))
        return Searched(form, best.best.part, best.best.path, best.engine)

    def _run(self, engine: Engine, block: Block, moves: Moves, seconds: float) -> Found:
        if engine == "saturation":
            patterns = moves.matcher.patterns.core if moves.matcher is not None else None
            return saturated_search(block, patterns, self.alone, Limits(seconds=seconds))
        price = lambda part: part_price(part, block.places, block.part, self.price, self.layouts)
        return backtrack(block.part, moves, price, Budget(STATES, seconds), self.alpha)
