"""If, Loop and Scan."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper

from tools.graph_fuzz.families.subgraphs import grow_body
from tools.graph_fuzz.growth import Growth, Held, Impossible
from tools.graph_fuzz.registry import generates
from whet.core.dtypes import bool_


@generates("If")
def if_(g: Growth, name: str) -> Held | list[Held]:
    """The condition is known, given, or computed; both branches give the same types, unless
    the condition is known."""
    wanted = [g.tensor().type for _ in range(g.draw.integer(1, 2))]
    condition = _condition(g)
    branches = [grow_body(g, [], states=wanted, seeds=wanted).graph for _ in range(2)]
    return g.emit(name, condition, outputs=len(wanted), then_branch=branches[0],
                  else_branch=branches[1])  # fmt: skip


def _condition(g: Growth) -> Held:
    found = [v for v in g.visible() if v.dtype == bool_ and v.size == 1]
    if found and g.draw.chance(0.4):
        return g.draw.pick(found)
    if g.draw.chance(0.4):
        v = g.tensor(g.types("Less"), where=lambda v: v.size > 0)
        total = g.emit("ReduceMax", v, keepdims=0) if v.dtype in g.types("ReduceMax") else None
        if total is not None and total.size == 1:
            limit = g.constant(np.asarray(1).astype(v.dtype.numpy))
            return g.emit("Less", total, limit)
    return g.operand(np.asarray(g.draw.chance(0.5)))


@generates("Loop")
def loop(g: Growth, name: str) -> Held | list[Held]:
    """So many rounds, with values that are carried and some that are collected.

    The condition stays true, becomes false in some round, or comes from data.
    """
    states = [_state(g) for _ in range(g.draw.integer(1, 2))]
    rounds = g.draw.pick([0, 1, 2, 3, 4])
    collected = g.draw.integer(0, 1)
    stops = g.draw.pick([None, None, g.draw.integer(0, 3)])
    arguments = [np.asarray(0, np.int64), np.asarray(True), *(s.array for s in states)]
    going = g.fresh_name("going")
    body = grow_body(g, arguments, collected, [s.type for s in states], first=[going])
    body.graph.output[0].CopyFrom(helper.make_tensor_value_info(going, 9, []))
    number, condition = (i.name for i in body.graph.input[:2])
    if stops is None:
        body.graph.node.append(helper.make_node("Identity", [condition], [going]))
    else:
        limit = g.fresh_name("c")
        body.graph.initializer.append(helper.make_tensor(limit, 7, [], [stops]))
        body.graph.node.append(helper.make_node("Less", [number, limit], [going]))
    count = g.ints(rounds)
    start = g.constant(np.asarray(g.draw.chance(0.9))) if g.draw.chance(0.6) else None
    return g.emit(name, count, start, *states, outputs=len(states) + collected, body=body.graph)


def _state(g: Growth) -> Held:
    return g.tensor([d for d in g.types("Identity", "T" if g.opset < 14 else "V") if d.bits >= 8],
                    where=lambda v: 0 < v.size <= 200, shape=lambda: g.shape(most=100))  # fmt: skip


@generates("Scan")
def scan(g: Growth, name: str) -> Held | list[Held]:
    if g.opset < 8:
        raise Impossible
    scanned = [g.tensor(rank=range(1, 4), where=lambda v: 0 < v.size <= 300)]
    batched = g.opset == 8
    if batched and scanned[0].rank < 2:
        raise Impossible
    axis = 1 if batched else g.draw.integer(0, scanned[0].rank - 1)
    length = scanned[0].shape[axis]
    if length > 9:
        raise Impossible
    if g.draw.chance(0.3):
        lead = (scanned[0].shape[0],) if batched else ()
        scanned.append(g.fresh(g.dtype(), (*lead, length, *g.shape(1, extent=5))))
    axes = [axis, *(1 if batched else 0 for _ in scanned[1:])]
    states = [_state(g) for _ in range(g.draw.integer(0, 2))]
    if batched:
        states = [g.fresh(s.dtype, (scanned[0].shape[0], *s.shape)) for s in states]
    collected = g.draw.integer(0 if states else 1, 2)
    slices = [np.take(v.array, 0, a) for v, a in zip(scanned, axes)]
    firsts = [s.array for s in states]
    if batched:
        slices, firsts = [s[0] for s in slices], [s[0] for s in firsts]
    body = grow_body(g, [*firsts, *slices], collected,
                     [Held("", np.asarray(s)).type for s in firsts])  # fmt: skip
    given: dict[str, Any] = {"body": body.graph, "num_scan_inputs": len(scanned)}
    outputs = len(states) + collected
    if batched:
        return g.emit(name, None, *states, *scanned, outputs=outputs, **given)
    if any(axes) or g.draw.chance(0.3):
        given["scan_input_axes"] = axes
    if g.draw.chance(0.3):
        given["scan_input_directions"] = [g.draw.integer(0, 1) for _ in scanned]
    if collected and g.draw.chance(0.3):
        given["scan_output_directions"] = [g.draw.integer(0, 1) for _ in range(collected)]
    return g.emit(name, *states, *scanned, outputs=outputs, **given)
