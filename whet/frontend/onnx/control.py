"""Control flow, resolved while a model is imported.

If   with a known condition: the branch; else both branches, and a choice per element
Loop with a known number of rounds: unrolled
"""

from __future__ import annotations

import numpy as np

from whet.core.dtypes import bool_, i64
from whet.core.errors import ModelError
from whet.frontend.onnx.mapping import Context, Converted, NeedsValue, array_of, maps
from whet.frontend.onnx.sequence import stack
from whet.graph.graph import Constant, Value
from whet.ops.base import DynamicType
from whet.ops.logic import Where

MAX_ROUNDS = 4096


@maps("If")
def if_(c: Context) -> Converted:
    condition = c.input(0)
    if isinstance(condition, Constant):
        taken = "then_branch" if _truth(c, condition) else "else_branch"
        return c.run_subgraph(c.attr(taken), ())
    if condition.tensor_type.size != 1:
        c.unsupported("the condition is not a single value")
    try:
        yes = c.run_subgraph(c.attr("then_branch"), ())
        no = c.run_subgraph(c.attr("else_branch"), ())
    except ModelError as error:
        if not error.code.startswith("WH11"):
            raise
        # A type error in one branch: it holds only for its own condition.
        raise NeedsValue(condition) from error
    if len(yes) != len(no) or not all(map(_same_type, yes, no)):
        raise NeedsValue(condition)
    return tuple(a if a is b else c(Where(), condition, a, b) for a, b in zip(yes, no))


def _same_type(a: Converted, b: Converted) -> bool:
    return (
        isinstance(a, Value)
        and isinstance(b, Value)
        and a.type == b.type
        and not isinstance(a.type, DynamicType)
    )


@maps("Loop")
def loop(c: Context) -> Converted:
    body = c.attr("body")
    rounds = None if c.optional(0) is None else c.const_int(0)
    going: Converted = c.optional(1) or c.constant(True, bool_)
    state = list(c.inputs[2:])
    scanned = len(body.output) - 1 - len(state)
    if scanned < 0 or len(body.input) != 2 + len(state):
        c.unsupported("the body's inputs or outputs do not fit the loop's")
    collected: list[list[Value]] = [[] for _ in range(scanned)]
    n = 0
    while (rounds is None or n < rounds) and _truth(c, going):
        if n == MAX_ROUNDS:
            c.unsupported(f"a loop of more than {MAX_ROUNDS} rounds")
        going, *results = c.run_subgraph(body, (c.constant(n, i64), going, *state))
        state, items = results[: len(state)], results[len(state) :]
        for found, item in zip(collected, items):
            found.append(item)
        n += 1
    if collected and not n:
        # One round that does not count tells the types of the items.
        results = list(c.run_subgraph(body, (c.constant(0, i64), going, *state)))
        types = [v.tensor_type for v in results[1 + len(state) :]]
        return (*state, *(c.filled(0, t.dtype, (0, *t.shape)) for t in types))
    return (*state, *(stack(c, tuple(found), 0) for found in collected))


def _truth(c: Context, value: Value) -> bool:
    array = array_of(value)
    if array.size != 1:
        c.unsupported("the condition is not a single value")
    return bool(np.ravel(array)[0])
