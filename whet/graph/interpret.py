"""The NumPy interpreter: runs any graph, and is the reference for everything that is faster."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from whet.core.errors import UsageError, check
from whet.core.types import Array, type_of
from whet.graph.graph import Constant, Graph, Node, Value

Observer = Callable[[Node, tuple[Array, ...]], None]


def interpret(
    graph: Graph,
    arrays: Sequence[Array],
    *,
    precise: bool = False,
    observe: Observer | None = None,
) -> tuple[Array, ...]:
    """The graph's outputs for the given inputs.

    With `precise`, floating-point values are carried in float64 from the inputs on and the
    outputs stay float64: the yardstick for the error of generated code.  `observe` is called
    with every node and its results.  A value is released after its last use.
    """
    check(
        len(arrays) == len(graph.inputs),
        "WH1203",
        f"the graph has {len(graph.inputs)} inputs and got {len(arrays)} arrays",
        kind=UsageError,
    )
    env: dict[Value, Array] = {}
    for value, array in zip(graph.inputs, arrays):
        got = type_of(np.asarray(array))
        check(got == value.type, "WH1203", f"input '{value.name}' is {value.type}, got {got}",
              kind=UsageError)  # fmt: skip
        env[value] = _widen(np.asarray(array)) if precise else np.asarray(array)
    remaining = {v: len(nodes) for v, nodes in graph.users.items()}
    keep = set(graph.outputs)
    for node in graph.nodes:
        args = tuple(_read(v, env, precise) for v in node.inputs)
        if precise:
            results = _run_precise(node, args)
        else:
            results = node.op.run_reference(args)
        env.update(zip(node.results, results, strict=True))
        if observe is not None:
            observe(node, results)
        for v in dict.fromkeys(node.inputs):
            remaining[v] -= 1
            if not remaining[v] and v not in keep and not isinstance(v, Constant):
                del env[v]
        for r in node.results:
            if r not in remaining and r not in keep:
                del env[r]
    return tuple(_read(v, env, precise) for v in graph.outputs)


def _read(value: Value, env: dict[Value, Array], precise: bool) -> Array:
    if isinstance(value, Constant):
        return _widen(value.array) if precise else value.array
    return env[value]


def _widen(array: Array) -> Array:
    t = type_of(array)
    return array.astype(np.float64) if t.dtype.is_float and not t.dtype.is_storage_only else array


def _run_precise(node: Node, args: tuple[Array, ...]) -> tuple[Array, ...]:
    """The operator on widened inputs.

    An operator that fixes an output type of its own (a cast to f32, say) would narrow the
    value again, so its floating-point results are widened too.
    """
    return tuple(_widen(r) for r in node.op.run_reference(args))
