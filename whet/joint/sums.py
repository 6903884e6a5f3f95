"""Sums in another order, where terms come side by side that a rule can put together.

    (conv(x, w) + a) + (conv(y, v) + b)   ->   (conv(x, w) + conv(y, v)) + (a + b)
                                          ->   conv(concat(x, y), concat(w, v)) + (a + b)

Another order alone gains nothing, and some cost more than the search lets pass: graphs on the way
are not priced, only what a rule makes of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import partial

from whet.graph.graph import Constant, Node, Result, Value
from whet.joint.search import Step
from whet.superopt.apply.axis_rules import node_types, sums_up
from whet.superopt.apply.match import Matcher
from whet.superopt.apply.patterns import Pattern
from whet.superopt.apply.rewrite import CycleError, Part, Rewrite, applied

MOST_ORDERS = 60
"""Orders of one sum that are looked at: a sum of four terms has 15."""


def sum_steps(part: Part, matcher: Matcher) -> Iterator[Step]:
    """Steps that put two terms of a sum together which do not stand side by side."""
    for root in part.nodes:
        if root.op.name not in matcher.patterns.regrouped or _continues(part, root):
            continue
        terms = _terms(part, root)
        makers = [v.node for v in terms if isinstance(v, Result) and v not in part.inputs]
        heavy = [n.op.name for n in makers if sums_up(n.op, node_types(n))]
        if len(terms) < 3 or len(heavy) == len(set(heavy)):
            continue
        (old,) = root.results
        for path, new, meeting in _orders(old, terms, matcher):
            try:
                ordered = applied(part, [Rewrite(path[-1].rule, "real", (old,), (new,))])
                for rewrite in matcher.rewrites(ordered, partial(_joins, meeting)):
                    yield (*path, rewrite), applied(ordered, [rewrite])
            except CycleError:
                continue


def _continues(part: Part, node: Node) -> bool:
    """Whether the node is a term of a larger sum and nothing else."""
    (value,) = node.results
    users = part.users.get(value, ())
    return value not in part.needed and len(users) == 1 and users[0].op == node.op


def _terms(part: Part, root: Node) -> list[Value]:
    found: list[Value] = []
    stack = list(root.inputs)
    while stack:
        value = stack.pop()
        node = value.node if isinstance(value, Result) and value not in part.inputs else None
        if node is not None and node.op == root.op and _continues(part, node):
            stack += node.inputs
        else:
            found.append(value)
    return found


def _orders(
    root: Value, terms: list[Value], matcher: Matcher
) -> Iterator[tuple[tuple[Rewrite, ...], Value, frozenset[Value]]]:
    """Orders of the sum in which two terms meet that did not in those before, with the rewrites
    that lead there and the sums of such terms."""
    start = Part(tuple({v: None for v in terms if not isinstance(v, Constant)}), (root,))
    queue: deque[tuple[tuple[Rewrite, ...], Part]] = deque([((), start)])
    seen = {start.outputs}
    met = set(_meeting(start))
    while queue:
        path, order = queue.popleft()
        for rewrite in matcher.rewrites(order, _regroups):
            made = applied(order, [rewrite])
            if made.outputs in seen:
                continue
            if len(seen) == MOST_ORDERS:
                return
            seen.add(made.outputs)
            steps = (*path, rewrite)
            queue.append((steps, made))
            new = {pair: v for pair, v in _meeting(made).items() if pair not in met}
            if new:
                met |= set(new)
                yield steps, made.outputs[0], frozenset(new.values())


def _regroups(value: Value, pattern: Pattern) -> bool:
    return pattern.regroups


def _joins(sums: frozenset[Value], value: Value, pattern: Pattern) -> bool:
    return value in sums and not pattern.regroups


def _meeting(order: Part) -> dict[frozenset[Value], Value]:
    """Pairs of terms that are added to each other, with their sums."""
    return {
        frozenset(node.inputs): node.results[0]
        for node in order.nodes
        if all(v in order.inputs for v in node.inputs)
    }
