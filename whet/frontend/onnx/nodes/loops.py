"""ONNX loops: unrolled, or with a body that is converted once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from whet.core.dtypes import bool_, i64
from whet.core.types import TensorType
from whet.frontend.onnx.convert import is_dynamic
from whet.frontend.onnx.interrupts import Deferred
from whet.frontend.onnx.mapping import Context, Converted, NeedsValue
from whet.frontend.onnx.nodes.sequence import stack
from whet.frontend.onnx.tracing import depends_on
from whet.graph.body import close_body, fresh_inputs
from whet.graph.graph import Constant, Input, Value
from whet.ops.arithmetic import Add
from whet.ops.logic import Less, LogicalAnd
from whet.ops.loop import CollectingLoop, WhileLoop
from whet.ops.movement import Reshape
from whet.ops.scan import Scan

MAX_UNROLLED = 4096
"""How many rounds are written out where there is no other way."""
MAX_STEPS = 1 << 24
"""How often a loop may run whose number of rounds is known."""


class BodyProblem(Exception):  # noqa: N818 - a signal to the converters, no error of its own
    """Why a body cannot be converted once for all rounds.

    `ends_by_data` if it is known that constants cannot tell how many rounds there are.
    """

    def __init__(self, reason: str, *, ends_by_data: bool = False) -> None:
        super().__init__(reason)
        self.ends_by_data = ends_by_data


def run_body(c: Context, graph: Any, own: Sequence[Value], inputs: Sequence[Input]) -> tuple[
    Converted, ...]:  # fmt: skip
    """The outputs of a body for values of which `inputs` change from round to round."""
    try:
        return c.run_subgraph(graph, own)
    except NeedsValue as need:
        steady = [v for v in (need.value, *need.others) if not depends_on(v, inputs)]
        if steady:
            raise NeedsValue(*steady) from need
        raise BodyProblem(
            "a shape in its body depends on values that change from round to round"
        ) from need
    except Deferred as signal:
        raise BodyProblem("a shape in its body depends on data") from signal


# ------------------------------------------------------------------------------------ unrolled
def unrolled(c: Context, most: int) -> tuple[Converted, ...] | None:
    """The results of a loop that, as constants tell, ends within so many rounds; else None."""
    body, state = c.attr("body"), list(c.inputs[2:])
    count, going = c.optional(0), c.optional(1)
    if count is not None and not isinstance(count, Constant):
        return None
    rounds = None if count is None else c.const_int(0)
    going = c.constant(True, bool_) if going is None else going
    collected: list[list[Value]] = [[] for _ in range(len(body.output) - 1 - len(state))]
    n = 0
    while rounds is None or n < rounds:
        if not isinstance(going, Constant) or n == most:
            return None
        c.require(going.array.size == 1, "the condition is not a single value")
        if not going.array.any():
            break
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


# --------------------------------------------------------------------------------- a body once
def closed_loop(c: Context) -> tuple[Value, ...]:
    """The results of a loop whose body is converted once; `BodyProblem` if it cannot be."""
    states = [_plain(v, f"state {n}") for n, v in enumerate(c.inputs[2:])]
    number, *own = fresh_inputs([TensorType((), i64), *(v.tensor_type for v in states)])
    inputs = (number, *own)
    # Within a round the condition holds: else there would be no round.
    given = run_body(c, c.attr("body"), (number, c.constant(True, bool_), *own), inputs)
    onward, *rest = [_plain(v, "a result") for v in given]
    following, items = rest[: len(states)], rest[len(states) :]
    for n, (old, new) in enumerate(zip(states, following)):
        if old.type != new.type:
            raise BodyProblem(
                f"state {n} changes from {old.type} to {new.type}, and the number of rounds "
                "depends on data",
                ends_by_data=not isinstance(onward, Constant),
            )
    count, going = c.optional(0), c.optional(1)
    always = isinstance(onward, Constant) and bool(onward.array.all())
    starts = going is None or (isinstance(going, Constant) and bool(going.array.all()))
    # The number of the round is one more state.
    states = [c.constant(0, i64), *states]
    following = [c(Add(), number, c.constant(1, i64)), *following]
    if isinstance(count, Constant) and always and starts:
        rounds = c.const_int(0)
        c.require(rounds <= MAX_STEPS, f"a loop of more than {MAX_STEPS} rounds")
        body, outside = close_body(inputs, (*following, *items))
        scan = Scan(body, rounds, len(states), (), (0,) * len(items))
        return c.results(scan, *states, *outside)[1:]
    c.require(count is not None or not always, "a loop that never ends")
    to_start = [] if starts else [c.input(1)]
    to_go_on = [] if always else [onward]
    if count is not None:
        limit = _scalar(c, count)
        to_start.append(c(Less(), states[0], limit))
        to_go_on.append(c(Less(), following[0], limit))
    body, outside = close_body(inputs, (_all(c, to_go_on), *following, *items))
    loop = (CollectingLoop if items else WhileLoop)(body, len(states))
    return c.results(loop, _all(c, to_start), *states, *outside)[1:]


def _all(c: Context, conditions: Sequence[Value]) -> Value:
    """Whether all conditions hold."""
    found = [_scalar(c, v) for v in conditions]
    return reduce(lambda a, b: c(LogicalAnd(), a, b), found) if found else c.constant(True, bool_)


def _plain(value: Converted, what: str) -> Value:
    if not isinstance(value, Value) or is_dynamic(value):
        kind = "a sequence" if isinstance(value, tuple) else "no tensor of known shape"
        raise BodyProblem(f"{what} is {kind}, and the number of rounds depends on data")
    return value


def _scalar(c: Context, value: Value) -> Value:
    """A single number as a tensor without axes."""
    return value if value.tensor_type.rank == 0 else c(Reshape(()), value)
