"""What rules ask about a task: its nests as a DAG, and how each reads the others (Ansor, 4.1).

A node is a nest of the naive program.  `y = relu(a @ b)` in one tensor expression is two nodes,
the product and what follows it, as if it had been written in two.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from whet.ir.affine import affine
from whet.ir.expr import Call, Const, Expr, Read, Select, Var
from whet.ir.functions import COSTLY
from whet.ir.program import Buffer, Loop, Program, Stmt, Store, walk
from whet.ir.tensor import subexpressions
from whet.schedule.program.primitives.accesses import stores_in
from whet.schedule.program.primitives.dependence import as_update


@dataclass(frozen=True, eq=False)
class Node:
    """One nest: what it writes, the loops over it, and what it reads."""

    buffer: Buffer
    space: tuple[Var, ...]
    """Loops over elements, outermost first."""
    reduced: tuple[Var, ...]
    extents: dict[Var, int]
    stores: tuple[Store, ...]
    is_plain: bool
    """Whether it is one store per element, or a start value and one store that combines."""

    @property
    def name(self) -> str:
        return self.buffer.name

    @cached_property
    def value(self) -> Expr:
        """What it computes per step."""
        return self.stores[-1].value

    @cached_property
    def reads(self) -> tuple[Read, ...]:
        """The reads of other buffers."""
        found = [e for s in self.stores for e in subexpressions(s.value) if isinstance(e, Read)]
        return tuple(dict.fromkeys(r for r in found if r.tensor is not self.buffer))

    @property
    def space_size(self) -> int:
        return math.prod(self.extents[v] for v in self.space)

    @property
    def reduced_size(self) -> int:
        return math.prod(self.extents[v] for v in self.reduced)

    @cached_property
    def has_branch(self) -> bool:
        return any(isinstance(e, Select) for e in subexpressions(self.value))

    @cached_property
    def is_expensive(self) -> bool:
        """Ansor looks for `exp` alone; other functions cost as much."""
        calls = [e for e in subexpressions(self.value) if isinstance(e, Call)]
        return any(c.name in COSTLY for c in calls)


@dataclass(frozen=True)
class Pattern:
    """How a read's indices use the loops over the elements of the reader."""

    is_simple: bool
    """Every index is a constant, or one such loop plus a constant."""
    misses: bool
    repeats: bool
    in_order: bool

    @property
    def is_elementwise(self) -> bool:
        return self.is_simple and self.in_order and not self.misses and not self.repeats


def pattern(node: Node, read: Read) -> Pattern:
    used: list[Var] = []
    simple = True
    for index in read.indices:
        form = affine(index)
        match form.terms:
            case ():
                continue
            case ((Var() as var, 1),) if var in node.space:
                used.append(var)
            case _:
                simple = False
    places = [node.space.index(v) for v in used]
    return Pattern(
        simple,
        misses=bool({v for v in node.space if node.extents[v] > 1} - set(used)),
        repeats=len(set(used)) < len(used),
        in_order=places == sorted(places),
    )


@dataclass(frozen=True, eq=False)
class Dag:
    """The nests of a task in order, readers after what they read."""

    program: Program
    nodes: tuple[Node, ...]

    def node(self, name: str) -> Node:
        return next(n for n in self.nodes if n.name == name)

    @cached_property
    def outputs(self) -> frozenset[str]:
        return frozenset(b.name for b in self.program.outputs)

    @cached_property
    def readers(self) -> dict[str, tuple[Node, ...]]:
        """The nodes that read each node."""
        return {
            n.name: tuple(m for m in self.nodes if any(r.tensor is n.buffer for r in m.reads))
            for n in self.nodes
        }

    # ------------------------------------------------------------------------- predicates
    def is_strictly_inlinable(self, node: Node) -> bool:
        """A cheap elementwise stage without a choice in it, or a tensor that reads nothing."""
        if node.name in self.outputs or node.reduced or not node.is_plain or len(node.stores) > 1:
            return False
        if not node.reads:
            return True
        patterns = [pattern(node, r) for r in node.reads]
        plain = all(p.is_simple and p.in_order and not p.repeats for p in patterns)
        return plain and not node.has_branch and not node.is_expensive

    def has_data_reuse(self, node: Node) -> bool:
        """Some of what is read serves several elements (Ansor: HasDataReuse)."""
        if not node.is_plain or not node.space or self.constant_loops(node):
            return False
        count = 0
        for tensor in dict.fromkeys(r.tensor for r in node.reads):
            own = [r for r in node.reads if r.tensor is tensor]
            used = {s for r in own for i in r.indices for s in subexpressions(i)}
            count += any(v not in used and node.extents[v] > 1 for v in node.space)
        return count >= 2 or (count >= 1 and bool(node.reduced))

    def constant_loops(self, node: Node) -> frozenset[Var]:
        """The loops that index tensors which read nothing (Winograd's matrices): to be unrolled,
        so that what they read becomes part of the code."""
        constants = {n.buffer for n in self.nodes if not n.reads and n.is_plain}
        if not node.is_plain or not any(r.tensor in constants for r in node.reads):
            return frozenset()
        indices = [i for r in node.reads if r.tensor in constants for i in r.indices]
        return frozenset(s for i in indices for s in subexpressions(i) if isinstance(s, Var))

    def needs_rfactor(self, node: Node, cores: int) -> bool:
        """More parallelism in the reduction than over elements (HasMoreReductionParallel)."""
        if not node.is_plain or not node.reduced:
            return False
        if self.has_data_reuse(node):
            return node.space_size <= min(node.reduced_size, 16 * cores)
        return node.reduced_size > cores

    def only_reader(self, node: Node, inlined: frozenset[str]) -> Node | None:
        """The one node that reads this one, looking through inlined ones; None if there are more
        or the shapes on the way differ (ElementWiseMatch)."""
        while True:
            readers = self.readers[node.name]
            if len(readers) != 1:
                return None
            (reader,) = readers
            reads = [r for r in reader.reads if r.tensor is node.buffer]
            same = reader.buffer.shape == node.buffer.shape
            if not same or not all(pattern(reader, r).is_elementwise for r in reads):
                return None
            if reader.name not in inlined:
                return reader
            node = reader


def dag_of(program: Program) -> Dag:
    """The nests of a naive program."""
    return Dag(program, tuple(_node(block) for block in nests_of(program)))


def nests_of(program: Program) -> list[tuple[Stmt, ...]]:
    """The statements of each node; without loops over elements a start value stands alone."""
    found: list[tuple[Stmt, ...]] = []
    waiting: tuple[Stmt, ...] = ()
    for stmt in program.body:
        waiting += (stmt,)
        if not (isinstance(stmt, Store) and isinstance(stmt.value, Const)):
            found.append(waiting)
            waiting = ()
    return [*found, *((s,) for s in waiting)]


def _node(block: tuple[Stmt, ...]) -> Node:
    stores = stores_in(block)
    loops = [s for s in walk(block) if isinstance(s, Loop)]
    extents = {s.var: int(s.extent.value) for s in loops if isinstance(s.extent, Const)}
    written = {s for i in stores[-1].indices for s in subexpressions(i)}
    space = tuple(v for v in extents if v in written)
    reduced = tuple(v for v in extents if v not in written)
    return Node(stores[-1].buffer, space, reduced, extents, tuple(stores), _is_plain(block, stores))


def _is_plain(block: Sequence[Stmt], stores: Sequence[Store]) -> bool:
    """One store per element, or a start value and one that combines into the same element."""
    linear = all(isinstance(i, (Var, Const)) for s in stores for i in s.indices)
    apart = not any(len(b) > 2 for s in walk(block) for b in s.blocks)
    if len(stores) == 1:
        return linear and apart and as_update(stores[0]) is None
    first, *rest = stores
    combines = len(rest) == 1 and as_update(rest[0]) is not None
    return linear and apart and combines and rest[0].indices == first.indices


def axis_order(node: Node) -> tuple[Var, ...]:
    """The loops over elements in the order of memory, neighbours last."""
    steps: dict[Expr, int] = dict(zip(node.stores[-1].indices, node.buffer.element_strides))
    return tuple(sorted(node.space, key=lambda v: -steps.get(v, 0)))
