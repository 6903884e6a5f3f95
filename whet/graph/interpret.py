"""The NumPy interpreter: runs any graph, and is the reference for everything that is faster."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from whet.core.dtypes import DType, f64
from whet.core.errors import UsageError, WhetError, check
from whet.core.types import Array, Shape, TensorType, type_of
from whet.graph.graph import Constant, Graph, Node, Value
from whet.ops.base import Body, OutputType
from whet.ops.casting import Cast

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
        fits = got == value.type or (precise and got == value.tensor_type.with_dtype(f64))
        check(fits, "WH1203", f"input '{value.name}' is {value.type}, got {got}",
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
    return array.astype(np.float64) if _is_widened(type_of(array).dtype) else array


def _is_widened(dtype: DType) -> bool:
    return dtype.is_float and not dtype.is_storage_only and dtype != f64


def _run_precise(node: Node, args: tuple[Array, ...]) -> tuple[Array, ...]:
    """The operator on widened inputs, with floating-point results widened.

    Cases: (1) bodies among the attributes are widened too; (2) a cast between floating-point
    types changes nothing, because rounding is what this mode leaves out; (3) an operator that
    has no meaning for f64, or another one (the bits of a float), sees its declared types.
    """
    op = node.op
    if isinstance(op, Cast) and args[0].dtype == np.float64 and _is_widened(op.to):
        return args
    fields = {k: v.widened() for k, v in op.attributes().items() if isinstance(v, Body)}
    if fields:
        op = dataclasses.replace(op, **fields)  # type: ignore[type-var]
    elif not _means_the_same(node, args):
        args = tuple(
            a.astype(v.type.dtype.numpy, copy=False) for v, a in zip(node.inputs, args, strict=True)
        )
    return tuple(_widen(r) for r in op.run_reference(args))


def _means_the_same(node: Node, args: tuple[Array, ...]) -> bool:
    """Whether widened inputs give results of the declared shapes and kinds."""
    try:
        wide = node.op.infer_types(tuple(type_of(a) for a in args))
    except WhetError:
        return False
    return all(_kind(w) == _kind(r.type) for w, r in zip(wide, node.results, strict=True))


def _kind(t: OutputType) -> tuple[Shape | int, str]:
    """What widening must not change: the shape, and the element type unless it is widened."""
    shape = t.shape if isinstance(t, TensorType) else t.rank
    return shape, "float" if _is_widened(t.dtype) or t.dtype == f64 else t.dtype.name
