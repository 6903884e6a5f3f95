"""ONNX recurrent layers and Scan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from whet.frontend.onnx.mapping import Context, maps, normalized_axis
from whet.frontend.onnx.nodes.loops import BodyProblem, run_body
from whet.graph.body import close_body, fresh_inputs
from whet.graph.graph import Value
from whet.ops.movement import Concat, Reshape, Slice, Transpose
from whet.ops.recurrent import GRU, LSTM, RNN, Recurrence
from whet.ops.scan import Scan
from whet.ops.shared.gate_functions import ACTIVATIONS

CELLS: dict[str, type[Recurrence]] = {"RNN": RNN, "GRU": GRU, "LSTM": LSTM}
FLAGS = {"GRU": ("linear_before_reset",), "LSTM": ("input_forget",)}


@maps("RNN", "GRU", "LSTM")
def recurrent(c: Context) -> tuple[Value, ...]:
    """One operator per direction; [time, direction, batch, hidden] and the last states."""
    cell = CELLS[c.op_type]
    direction = c.attr("direction", "forward")
    reversed_flags = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}
    if direction not in reversed_flags:
        c.unsupported(f"direction '{direction}'")
    batch_first = bool(c.attr("layout", 0))
    x = c.input(0)
    c.require_types(c.type(0).rank == 3, f"the input is {c.type(0)}")
    if batch_first:
        x = c(Transpose((1, 0, 2)), x)
    functions = _gate_functions(c, cell, len(reversed_flags[direction]))
    runs = [
        _one_direction(c, cell, x, n, reverse, functions[n])
        for n, reverse in enumerate(reversed_flags[direction])
    ]
    stacked = []
    for parts in zip(*runs, strict=True):
        shape = parts[0].tensor_type.shape
        direction_axis = len(shape) - 2
        split = (*shape[:direction_axis], 1, *shape[direction_axis:])
        joined = c(Concat(direction_axis), *(c(Reshape(split), p) for p in parts))
        stacked.append(c(Transpose(_batch_first(len(split))), joined) if batch_first else joined)
    return tuple(stacked)


def _batch_first(rank: int) -> tuple[int, ...]:
    """[time, direction, batch, h] to [batch, time, direction, h]; states likewise."""
    return (2, 0, 1, 3) if rank == 4 else (1, 0, 2)


def _gate_functions(
    c: Context, cell: type[Recurrence], directions: int
) -> list[tuple[tuple[str, ...], tuple[float, ...], tuple[float, ...]]]:
    """Names, alphas and betas of each direction's activations.

    The lists of numbers hold a value only for the functions that have the parameter.
    """
    size = len(cell.default_activations)
    names = [n.lower() for n in c.attr("activations", ())]
    names = names or list(cell.default_activations) * directions
    if len(names) != size * directions or not set(names) <= set(ACTIVATIONS):
        c.unsupported(f"activations {c.attr('activations')}")
    alphas, betas = iter(c.attr("activation_alpha", ())), iter(c.attr("activation_beta", ()))
    alpha, beta = [], []
    for name in names:
        known = ACTIVATIONS[name]
        alpha.append(0.0 if known.alpha is None else float(next(alphas, known.alpha)))
        beta.append(0.0 if known.beta is None else float(next(betas, known.beta)))
    return [
        (tuple(names[n : n + size]), tuple(alpha[n : n + size]), tuple(beta[n : n + size]))
        for n in range(0, size * directions, size)
    ]


def _one_direction(
    c: Context,
    cell: type[Recurrence],
    x: Value,
    number: int,
    reverse: bool,
    functions: tuple[tuple[str, ...], tuple[float, ...], tuple[float, ...]],
) -> tuple[Value, ...]:
    t = x.tensor_type
    c.require_types(c.type(2).rank == 3, f"the recurrence weights are {c.type(2)}")
    rows, hidden = c.type(2).shape[1:]

    def part(index: int, shape: Sequence[int], axis: int = 0) -> Value:
        """This direction's part of an input, or zeros."""
        value = c.optional(index)
        if value is None:
            return c.filled(0, t.dtype, shape)
        whole = value.tensor_type.shape
        starts = tuple(number if n == axis else 0 for n in range(len(whole)))
        stops = tuple(number + 1 if n == axis else d for n, d in enumerate(whole))
        return c(Reshape(tuple(shape)), c(Slice(starts, stops, (1,) * len(whole)), value))

    batch_first = bool(c.attr("layout", 0))
    state = (t.shape[1], hidden)
    values = [
        x,
        part(1, (rows, t.shape[2])),
        part(2, (rows, hidden)),
        part(3, (2 * rows,)),
        *(part(5 + n, state, axis=int(batch_first)) for n in range(cell.n_states)),
    ]
    flags: dict[str, Any] = {name: bool(c.attr(name, 0)) for name in FLAGS.get(c.op_type, ())}
    if c.op_type == "LSTM" and c.optional(7) is not None:
        flags["peepholes"] = True
        values.append(part(7, (3 * hidden,)))
    lengths = c.optional(4)
    if lengths is not None:
        values.append(lengths)
    clip = c.attr("clip")
    names, alpha, beta = functions
    op = cell(
        activations=names,
        alpha=alpha,
        beta=beta,
        clip=None if clip is None else float(clip),
        reverse=reverse,
        masked=lengths is not None,
        **flags,
    )
    return c.results(op, *values)


# --------------------------------------------------------------------------------------- scan
@maps("Scan", since=8)
def batched_scan(c: Context) -> tuple[Value, ...]:
    """Opset 8: one scan per element of axis 0, along axis 1, each of its own length."""
    values = [c.input(n) for n in range(1, len(c.inputs))]
    states = _count_states(c, values)
    c.require(min(v.tensor_type.rank for v in values) >= 1, "a value has no batch axis")
    c.require(values[states].tensor_type.rank >= 2, "a scanned value has no time axis")
    batch, time = values[states].tensor_type.shape[:2]
    lengths = (time,) * batch if c.optional(0) is None else c.const_ints(0)
    c.require(len(lengths) == batch > 0 and min(lengths) > 0 and max(lengths) <= time,
              f"{len(lengths)} lengths for a batch of {batch} with {time} steps")  # fmt: skip
    rows = []
    for n, length in enumerate(lengths):
        own = [_batch_element(c, v, n, time if k < states else length, k >= states)
               for k, v in enumerate(values)]  # fmt: skip
        axes = (0,) * (len(values) - states)
        results = _scan(c, own, states, axes, c.attr("directions", ()))
        rows.append([*results[:states], *(_lengthened(c, v, time) for v in results[states:])])
    joined = []
    for parts in zip(*rows, strict=True):
        shape = (1, *parts[0].tensor_type.shape)
        joined.append(c(Concat(0), *(c(Reshape(shape), p) for p in parts)))
    return tuple(joined)


def _batch_element(c: Context, value: Value, number: int, length: int, scanned: bool) -> Value:
    """Element `number` of axis 0; of a scanned value only the first `length` steps."""
    shape = value.tensor_type.shape
    kept = (length, *shape[2:]) if scanned else shape[1:]
    starts, stops = (number, *(0,) * (len(shape) - 1)), (number + 1, *kept)
    return c(Reshape(kept), c(Slice(starts, stops, (1,) * len(shape)), value))


def _lengthened(c: Context, value: Value, time: int) -> Value:
    """The value with zeros after its last step, up to `time` steps."""
    t = value.tensor_type
    if t.shape[0] == time:
        return value
    rest = c.filled(0, t.dtype, (time - t.shape[0], *t.shape[1:]))
    return c(Concat(0), value, rest)


@maps("Scan", since=9)
def scan(c: Context) -> tuple[Value, ...]:
    """States and slices go through the body; outer values that it reads are added as inputs."""
    values = [c.input(n) for n in range(len(c.inputs))]
    states = _count_states(c, values)
    axes = _scan_axes(c, "scan_input_axes", [v.tensor_type.rank for v in values[states:]])
    return _scan(c, values, states, axes, c.attr("scan_input_directions", ()))


def _count_states(c: Context, values: Sequence[Value]) -> int:
    scanned = int(c.attr("num_scan_inputs"))
    states = len(values) - scanned
    c.require(0 <= states < len(values), f"{scanned} of {len(values)} inputs are scanned")
    c.require(states <= len(c.attr("body").output), "the body gives fewer states than it takes")
    return states


def _scan_axes(c: Context, name: str, ranks: Sequence[int]) -> tuple[int, ...]:
    given = c.attr(name) or [0] * len(ranks)
    c.require(len(given) == len(ranks), f"{len(given)} {name} for {len(ranks)} values")
    c.require_types(0 not in ranks, "a scalar has no steps")
    return tuple(normalized_axis(a, r) for a, r in zip(given, ranks, strict=True))


def _scan(
    c: Context,
    values: Sequence[Value],
    states: int,
    axes: tuple[int, ...],
    backwards: Sequence[int],
) -> tuple[Value, ...]:
    types = [v.tensor_type for v in values]
    for n, axis in enumerate(axes, states):
        shape = types[n].shape
        types[n] = types[n].with_shape(shape[:axis] + shape[axis + 1 :])
    inputs = fresh_inputs(types)
    try:
        outputs = run_body(c, c.attr("body"), inputs, inputs)
    except BodyProblem as problem:
        c.unsupported(str(problem))
    body, outside = close_body(inputs, outputs)
    ranks = [t.rank + 1 for t in body.output_types[states:]]
    op = Scan(
        body,
        values[states].tensor_type.shape[axes[0]] if axes else 0,
        states,
        axes,
        _scan_axes(c, "scan_output_axes", ranks),
        tuple(bool(d) for d in backwards),
        tuple(bool(d) for d in c.attr("scan_output_directions", ())),
    )
    return c.results(op, *values, *outside)
