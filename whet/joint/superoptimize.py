"""The graph that a model is compiled from: the cheapest that proved rewrites lead to.

    graph   ->   plan, price; operators of the whole graph put together, slices moved;
                 blocks searched, each kind once; seams searched again   ->   cheaper graph

Of every kind of block the few steps that mostly pay are tried before one is searched for longer,
and what was found is tried in the model also when the time is over.  Every accepted graph was
planned and priced as a whole: a block that seemed cheaper by itself counts only if the model is.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from whet.graph.graph import Graph, Value
from whet.graph.summary import node_flops
from whet.joint.blocks import SMALLEST, Block, Form, cut_blocks, form_of, transplanted
from whet.joint.checking import check_part
from whet.joint.clocks import FLOP_SECONDS, NODE_SECONDS, PATIENCE, Clock, WorkClock
from whet.joint.far import far_steps
from whet.joint.moves import Moves, promising
from whet.joint.pricing import Whole, part_price, plan_whole
from whet.joint.saturation.engine import saturated_search
from whet.joint.saturation.surrogate import Alone
from whet.joint.search import (
    ALPHA,
    ENGINES,
    Budget,
    Engine,
    Found,
    State,
    backtrack,
    descend,
)
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
FIRST_STATES = 40
"""States of one block that are priced whatever the time: on the way down by promising steps."""


CHECKED_SECONDS = 1e-3
"""Blocks that are expected to take longer are not compared on numbers within a short search: NumPy
takes some hundred times as long."""


LONG_SEARCH = 10.0
"""Seconds from which on a search uses all engines: saturation needs some for every block."""


def clock_for(seconds: float) -> Clock:
    """The clock of a search of this time: short ones find the same on every machine."""
    return Clock() if seconds >= LONG_SEARCH else WorkClock(seconds + PATIENCE)


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
    """A block of a form as it was, the best graph found for it, and who found that."""

    form: Form
    first: State
    best: State
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
        clock: Clock | None = None,
    ) -> None:
        self.price, self.holds, self.alpha, self.checked = price, holds, alpha, checked
        self.matcher, self.engines, self.layouts = matcher, engines, layouts
        self.alone = Alone(price)
        self.clock = clock or Clock()
        self.until = self.clock.now() + seconds
        self.states = 0
        self.log: list[Applied] = []

    @property
    def left(self) -> float:
        return self.until - self.clock.now()

    def _going(self) -> bool:
        """Whether what is always done is done: patience has an end."""
        return self.clock.now() < math.inf

    def run(self, graph: Graph, least: float = 0.0) -> Improved | None:
        """The best graph; None if the graph has no price, or one of less than `least` seconds."""
        first = whole = self._planned(graph, graph.outputs)
        if first is None or whole is None or first.seconds < least:
            return None
        whole = self._whole_graph(whole)
        moves = Moves(self.matcher())
        searched: dict[object, Searched | None] = {}
        for shift in (0, SMALLEST // 2, SMALLEST):
            if self.left > 0 or not shift:
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
        self.clock.spend(NODE_SECONDS * len(made.nodes))
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
        kinds: dict[object, list[int]] = {}
        for n, form in enumerate(forms):
            kinds.setdefault(form.key, []).append(n)
        new = sorted(
            (same[0] for key, same in kinds.items() if key not in searched),
            key=lambda n: -len(blocks[n].part.nodes),
        )
        begun = {n: self._descended(blocks[n]) for n in new}
        for done, n in enumerate(new):
            share = max(0.0, self.left) / (len(new) - done)
            searched[forms[n].key] = self._search(blocks[n], forms[n], moves, begun[n], share)
        better = self._taken(whole, blocks, forms, kinds, searched)
        if better is whole or self.left <= 0:
            return better
        return self._blocks(better, shift, moves, searched)

    def _taken(
        self,
        whole: Whole,
        blocks: Sequence[Block],
        forms: Sequence[Form],
        kinds: Mapping[object, Sequence[int]],
        searched: Mapping[object, Searched | None],
    ) -> Whole:
        """The graph with what was found for each kind of block, wherever it makes the model
        cheaper."""
        part = Part(whole.graph.inputs, whole.graph.outputs)
        taken: list[Rewrite] = []
        for key, same in kinds.items():
            found = searched[key]
            if found is None or not self._going():
                continue
            steps = [
                Rewrite(
                    "block",
                    "real",
                    blocks[n].given,
                    transplanted(found.best.part, found.form, forms[n], blocks[n]),
                )
                for n in same
            ]
            try:
                outputs = applied(part, [*taken, *steps]).outputs
            except CycleError:
                continue
            planned = self._planned(whole.graph, outputs)
            if planned is None or planned.seconds > (1 - WORTHWHILE) * whole.seconds:
                continue
            self._check(found)
            taken += steps
            prices = (whole.seconds, planned.seconds)
            self.log.append(Applied(found.best.path, len(same), *prices, outputs, found.engine))
            whole = planned
        return whole

    def _descended(self, block: Block) -> Sequence[State]:
        """The states of a block that are priced in any case."""
        return descend(block.part, promising, self._price_in(block), FIRST_STATES, self._going)

    def _search(
        self, block: Block, form: Form, moves: Moves, begun: Sequence[State], seconds: float
    ) -> Searched | None:
        engines = self.engines if seconds > 0 else ENGINES[:1]
        share = seconds / len(engines)
        found = [self._run(e, block, moves, begun, share) for e in engines]
        self.states += sum(f.states for f in found)
        best = min(found, key=lambda f: f.best.seconds)
        if best.best is best.first:
            return None
        return Searched(form, best.first, best.best, best.engine)

    def _run(
        self, engine: Engine, block: Block, moves: Moves, begun: Sequence[State], seconds: float
    ) -> Found:
        if engine == "saturation":
            patterns = moves.matcher.patterns.core if moves.matcher is not None else None
            return saturated_search(block, patterns, self.alone, Limits(seconds=seconds))
        price, budget = self._price_in(block), Budget(STATES, seconds)
        return backtrack(block.part, moves, price, budget, self.alpha, begun, self.clock)

    def _price_in(self, block: Block) -> Callable[[Part], float]:
        """The price of what may stand in the block's place."""

        def price(part: Part) -> float:
            self.clock.spend(NODE_SECONDS * len(part.nodes))
            return part_price(part, block.places, block.part, self.price, self.layouts)

        return price

    def _check(self, found: Searched) -> None:
        """Compares a block with what replaces it on numbers, unless that takes too long."""
        before, after = found.first, found.best
        if before.seconds <= self.checked:
            self.clock.spend(FLOP_SECONDS * sum(map(node_flops, before.part.nodes)))
            check_part(before.part, after.part, ", ".join(r.rule for r in after.path))
