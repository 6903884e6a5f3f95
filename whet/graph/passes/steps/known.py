"""States that are known before a scan runs, such as the number of the step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from whet.core.types import Array
from whet.graph.body import SMALL_CONSTANT, body_between
from whet.graph.build import GraphBuilder
from whet.graph.graph import Constant, Graph, Input, Value, topological
from whet.graph.interpret import interpret
from whet.graph.passes.steps.scans import ScanParts
from whet.ops.scan import MAX_FOLDED_STEPS


@dataclass(frozen=True)
class Known:
    """A scan without the states that are known, and the last values of those by number."""

    parts: ScanParts
    last: Mapping[int, Value]


def without_known_states(b: GraphBuilder, parts: ScanParts) -> Known:
    """The scan with known states as slices of a constant.

        scan(body: n, h -> n + 1, f(h, n)) from n = 0
        ->  scan(body: h, n_t -> f(h, n_t)) over n = [0, 1, 2, ...]

    A state is known if it starts as a small constant and its next value depends on such states
    alone.
    """
    op, body, values = parts.op, parts.body, parts.values
    numbers = _known(parts)
    if not numbers:
        return Known(parts, {})
    inputs = tuple(body.inputs[n] for n in numbers)
    step = Graph(inputs, tuple(body.outputs[n] for n in numbers), tuple(map(str, numbers)))
    now = [_array(values[n]) for n in numbers]
    rounds: list[list[Array]] = []
    for _ in range(op.length):
        rounds.append(now)
        now = list(interpret(step, now))
    kept = [n for n in range(op.states) if n not in numbers]
    slices, wholes = range(op.states, op.first_whole), range(op.first_whole, len(values))
    order = (*kept, *slices, *numbers, *wholes)
    stacks = (b.constant(np.stack(arrays)) for arrays in zip(*rounds))
    axes = (*op.input_axes, *(0,) * len(numbers))
    reverse = (*op.backward_inputs, *(False,) * len(numbers))
    outputs = [v for n, v in enumerate(body.outputs) if n not in numbers]
    made = body_between([body.inputs[n] for n in order], outputs)
    given = (*(values[n] for n in (*kept, *slices)), *stacks, *(values[n] for n in wholes))
    scan = replace(op, body=made, states=len(kept), input_axes=axes, reverse_inputs=reverse)
    last = {n: b.constant(a) for n, a in zip(numbers, now, strict=True)}
    return Known(ScanParts(scan, made.graph, given), last)


def _array(value: Value) -> Array:
    assert isinstance(value, Constant)
    return value.array


def _known(parts: ScanParts) -> tuple[int, ...]:
    """The numbers of the states that are known."""
    op, body = parts.op, parts.body
    if op.length > MAX_FOLDED_STEPS:
        return ()
    found: dict[int, set[Input] | None] = {
        n: _sources(body.outputs[n])
        for n, value in enumerate(parts.values[: op.states])
        if isinstance(value, Constant) and value.tensor_type.size <= SMALL_CONSTANT
    }
    while True:
        known = {body.inputs[n] for n in found}
        fewer = {n: s for n, s in found.items() if s is not None and s <= known}
        if len(fewer) == len(found):
            return tuple(found)
        found = dict(fewer)


def _sources(value: Value) -> set[Input] | None:
    """The inputs that a value depends on; None if it cannot be known, or takes long to compute."""
    nodes = topological([value])
    if any(not n.op.folds or n.op.host or _is_large(n.results) for n in nodes):
        return None
    read = [value, *(v for n in nodes for v in n.inputs)]
    return {v for v in read if isinstance(v, Input)}


def _is_large(results: tuple[Value, ...]) -> bool:
    return any(v.tensor_type.size > SMALL_CONSTANT for v in results)
