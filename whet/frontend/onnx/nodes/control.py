"""Control flow.

If   with a known condition: the branch; else both as bodies of a `branch`, or both computed
     and a choice per element where that is cheaper
Loop of few rounds, as far as constants tell: unrolled; else a `scan` if the number of rounds is
     known, and a loop that runs as long as its condition says if not
"""

from __future__ import annotations

import numpy as np

from whet.core.dtypes import bool_
from whet.core.errors import ModelError
from whet.frontend.onnx.interrupts import Deferred
from whet.frontend.onnx.mapping import (
    ClosedGraph,
    Context,
    Converted,
    NeedsValue,
    Unsupported,
    array_of,
    maps,
)
from whet.frontend.onnx.nodes.loops import MAX_UNROLLED, BodyProblem, closed_loop, unrolled
from whet.graph.body import GraphBody, fresh_inputs, whole_body
from whet.graph.graph import Constant, Value, topological
from whet.ops.base import DynamicType
from whet.ops.branch import Branch
from whet.ops.movement import Expand, Reshape, Slice, Transpose
from whet.ops.shared.elementwise import Elementwise

CHEAP = (Elementwise, Expand, Reshape, Slice, Transpose)
"""Operators that cost little and cannot fail."""
MOST_CHEAP_NODES = 8
"""Branches of no more nodes than this, all of them cheap, are computed both."""
FEW_ROUNDS = 16
"""How many rounds are written out where there is another way."""


# ------------------------------------------------------------------------------------------ If
@maps("If")
def if_(c: Context) -> Converted:
    condition = c.input(0)
    if isinstance(condition, Constant):
        taken = "then_branch" if _truth(c, condition) else "else_branch"
        return c.run_subgraph(c.attr(taken), ())
    if condition.tensor_type.size != 1:
        c.unsupported("the condition is not a single value")
    c.require_types(condition.tensor_type.dtype == bool_, "the condition is no truth value")
    try:
        then, other = _closed_branches(c, condition)
    except Deferred:
        raise NeedsValue(condition) from None
    except ModelError as error:
        if not error.code.startswith("WH11"):
            raise
        # A type error in one branch: it holds only for its own condition.
        raise NeedsValue(condition) from error
    results = (then.outputs, other.outputs)
    if len(results[0]) != len(results[1]) or not all(map(_same_type, *results)):
        raise NeedsValue(condition)
    values = tuple(dict.fromkeys((*then.values, *other.values)))
    op = Branch(_branch_body(then, values), _branch_body(other, values))
    nodes = topological((*then.outputs, *other.outputs))
    if len(nodes) <= MOST_CHEAP_NODES and all(isinstance(n.op, CHEAP) for n in nodes):
        return op.expand(c.builder, condition, *values)
    return c.results(op, condition, *values)


def _closed_branches(c: Context, condition: Value) -> tuple[ClosedGraph, ClosedGraph]:
    """Both branches; `NeedsValue` where one needs to know a value from outside."""
    branches = (c.attr("then_branch"), c.attr("else_branch"))
    try:
        return c.close_subgraph(branches[0]), c.close_subgraph(branches[1])
    except NeedsValue:
        try:
            # In the open the value can be seen, instead of what stands for it.
            for graph in branches:
                c.run_subgraph(graph, ())
        except NeedsValue as need:
            raise NeedsValue(need.value, *need.others, condition) from need
        raise NeedsValue(condition) from None


def _branch_body(branch: ClosedGraph, values: tuple[Value, ...]) -> GraphBody:
    """The branch as a body that takes all these values."""
    own = dict(zip(branch.values, branch.inputs))
    spare = fresh_inputs([v.tensor_type for v in values])
    return whole_body([own.get(v, s) for v, s in zip(values, spare)], branch.outputs)


def _same_type(a: Converted, b: Converted) -> bool:
    return (
        isinstance(a, Value)
        and isinstance(b, Value)
        and a.type == b.type
        and not isinstance(a.type, DynamicType)
    )


def _truth(c: Context, value: Value) -> bool:
    array = array_of(value)
    if array.size != 1:
        c.unsupported("the condition is not a single value")
    return bool(np.ravel(array)[0])


# ---------------------------------------------------------------------------------------- Loop
@maps("Loop")
def loop(c: Context) -> Converted:
    body, states = c.attr("body"), c.inputs[2:]
    if len(body.output) < 1 + len(states) or len(body.input) != 2 + len(states):
        c.unsupported("the body's inputs or outputs do not fit the loop's")
    few = unrolled(c, FEW_ROUNDS)
    if few is not None:
        return few
    try:
        return closed_loop(c)
    except BodyProblem as problem:
        many = unrolled(c, MAX_UNROLLED)
        if many is not None:
            return many
        unknown = [v for v in (c.optional(0), c.optional(1))
                   if v is not None and not isinstance(v, Constant)]  # fmt: skip
        if unknown and not problem.ends_by_data:
            raise NeedsValue(unknown[0]) from problem
        raise Unsupported(str(problem)) from problem
