"""E-graphs over the values of graphs: classes of values that are known to be equal.

    a = relu(x), b = relu(y);  x = y is found   ->   a and b are in one class (congruence)

Values of graphs are interned, so an e-node is simply a `Node` whose inputs are leaders, the
representatives of their classes; there is one for an operator and given classes.  Every value is
a finite expression, also where classes need each other: relu(relu(x)) = relu(x) puts the value
relu(a) into the class of a = relu(x).  (Willsey et al., egg, POPL'21, sections 2 and 3.)
"""

from __future__ import annotations

from collections.abc import Sequence

from whet.graph.graph import Constant, Node, Result, Value, apply
from whet.ops.base import Op
from whet.superopt.apply.rewrite import Part, Rewrite

Key = tuple[Op, tuple[Value, ...]]


class EGraph:
    """Everything that is known to be equal to values of a part."""

    def __init__(self, part: Part) -> None:
        self.inputs, self.outputs = part.inputs, part.outputs
        self._given = frozenset(part.inputs)
        self._above: dict[Value, Value] = {}
        self._members: dict[Value, dict[Value, None]] = {}
        self._users: dict[Value, dict[Node, None]] = {}
        self._known: dict[Key, Node] = {}
        self._ages: dict[Value, int] = {}
        self._outdated: list[Value] = []
        self.origins: dict[Node, Rewrite] = {}
        """The rewrite that brought in an e-node; none for those of the part."""
        self.births: dict[Node, int] = {}
        """The age of e-nodes: those of the part come first, in the order of computation."""
        self.changes = 0
        """Counts e-nodes and unions: as long as it stays, nothing new is known."""
        for value in part.outputs:
            self.add(value)

    def __contains__(self, value: Value) -> bool:
        return value in self._above

    def __len__(self) -> int:
        return len(self._known)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The e-nodes, oldest first."""
        return tuple(self._known.values())

    def find(self, value: Value) -> Value:
        """The leader of the value's class."""
        above = self._above
        while (up := above[value]) is not value:
            above[value] = above[up]
            value = up
        return value

    def members(self, value: Value) -> Sequence[Value]:
        """The class of a value: results of e-nodes, inputs and constants; itself if unknown."""
        if value not in self._above:
            return (value,)
        return tuple(self._members[self.find(value)])

    def users(self, value: Value) -> Sequence[Node]:
        """The e-nodes that read the class of a value."""
        return tuple(self._users[self.find(value)])

    def is_given(self, value: Value) -> bool:
        """Whether the class has an input or a constant: there is nothing to compute."""
        return any(self._is_leaf(v) for v in self._members[self.find(value)])

    def _is_leaf(self, value: Value) -> bool:
        return not isinstance(value, Result) or value in self._given

    # ---------------------------------------------------------------------------------- growing
    def add(self, value: Value, origin: Rewrite | None = None) -> Value:
        """The leader of the value's class, which is new if nothing equal to it is known."""
        stack = [value]
        while stack:
            v = stack[-1]
            if v in self._above:
                stack.pop()
            elif self._is_leaf(v):
                self._new_class(v)
                stack.pop()
            else:
                assert isinstance(v, Result)
                missing = [i for i in v.node.inputs if i not in self._above]
                if not missing:
                    self._enter(v.node, origin)
                    stack.pop()
                stack += missing
        return self.find(value)

    def union(self, rewrite: Rewrite) -> None:
        """Makes old and new values equal.  `rebuild` must follow before anything is asked.

        The same operator on the same values with other constants of the same types is no news: it
        costs the same, and rules that change weights alone would make it without end.
        """
        if len(rewrite.old) == 1 and self._has_twin(rewrite.old[0], rewrite.new[0]):
            return
        for old, new in zip(rewrite.old, rewrite.new, strict=True):
            self._merge(self.add(old), self.add(new, rewrite))

    def _has_twin(self, old: Value, new: Value) -> bool:
        wanted = _but_for_constants(new)
        return wanted is not None and any(
            _but_for_constants(v) == wanted for v in self.members(old)
        )

    def _enter(self, node: Node, origin: Rewrite | None) -> None:
        """An e-node for the node, which may read values that are not leaders."""
        inputs = tuple(self.find(v) for v in node.inputs)
        known = self._known.get((node.op, inputs))
        if known is None:
            known = self._register(node, inputs, origin)
            for result in known.results:
                self._new_class(result)
        for mine, its in zip(node.results, known.results):
            self._above.setdefault(mine, self.find(its))

    def _register(self, node: Node, inputs: tuple[Value, ...], origin: Rewrite | None) -> Node:
        same = all(a is b for a, b in zip(inputs, node.inputs))
        made = node if same else apply(node.op, *inputs)[0].node
        self._known[made.op, inputs] = made
        for v in inputs:
            self._users[v][made] = None
        if origin is not None:
            self.origins[made] = origin
        self.births[made] = self.births.get(node, len(self.births))
        self.changes += 1
        return made

    def _new_class(self, value: Value) -> None:
        if value not in self._above:
            self._above[value] = value
            self._members[value], self._users[value] = {value: None}, {}
            self._ages[value] = len(self._ages)

    # -------------------------------------------------------------------------------- congruence
    def _merge(self, a: Value, b: Value) -> None:
        """Unites two classes; inputs and constants lead, then what is older."""
        a, b = self.find(a), self.find(b)
        if a is b:
            return
        assert a.type == b.type, "equal values have equal types"
        leader, other = sorted((a, b), key=lambda v: (not self._is_leaf(v), self._ages[v]))
        self._above[other] = leader
        self._members[leader] |= self._members.pop(other)
        self._outdated.append(other)
        self.changes += 1

    def rebuild(self) -> None:
        """Restores what unions have broken: e-nodes read leaders, and equal ones are one."""
        while self._outdated:
            for node in self._users.pop(self._outdated.pop()):
                if self._known.get((node.op, node.inputs)) is node:
                    self._update(node)

    def _update(self, node: Node) -> None:
        del self._known[node.op, node.inputs]
        for v in node.inputs:
            self._users.get(v, {}).pop(node, None)
        inputs = tuple(self.find(v) for v in node.inputs)
        known = self._known.get((node.op, inputs))
        changes = self.changes
        made = known or self._register(node, inputs, self.origins.get(node))
        self.changes = changes
        for old, new in zip(node.results, made.results):
            leader = self.find(old)
            self._members[leader].pop(old)
            if known is None:
                self._above.setdefault(new, leader)
                self._members[self.find(new)][new] = None
            self._merge(leader, self.find(new))


def _but_for_constants(value: Value) -> tuple[object, ...] | None:
    """An operator on some constants: the operator, its inputs, and types in place of constants."""
    if not isinstance(value, Result):
        return None
    inputs = value.node.inputs
    if not any(isinstance(v, Constant) for v in inputs):
        return None
    return (value.node.op, *(v.type if isinstance(v, Constant) else v for v in inputs))
