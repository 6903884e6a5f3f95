"""The NumPy interpreter: runs any graph, and is the reference for everything that is faster."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from whet.core.dtypes import DType, f32, f64
from whet.core.errors import OperatorError, UsageError, WhetError, check
from whet.core.types import Array, Shape, TensorType, type_of
from whet.graph.graph import Constant, Graph, Input, Node, Result, Value
from whet.ops.base import Body, OutputType
from whet.ops.casting import Cast

Observer = Callable[[Node, tuple[Array, ...]], None]


def interpret(
    graph: Graph,
    arrays: Sequence[Array],
    *,
    precise: bool = False,
    round_halves: bool = True,
    observe: Observer | None = None,
) -> tuple[Array, ...]:
    """The graph's outputs for the given inputs.

    With `precise`, floating-point values are carried in float64 from the inputs on and the
    outputs stay float64: the yardstick for the error of generated code.  Without
    `round_halves`, f16 and bf16 values are carried in f32 between operators, as fused code
    does, and only casts and the outputs round.  `observe` is called with every node and its
    results.  A value is released after its last use.
    """
    check(
        len(arrays) == len(graph.inputs),
        "WH1203",
        f"the graph has {len(graph.inputs)} inputs and got {len(arrays)} arrays",
        kind=UsageError,
    )
    carrier = f64 if precise else None if round_halves else f32
    env: dict[Value, Array] = {}
    for value, array in zip(graph.inputs, arrays):
        got = type_of(np.asarray(array))
        fits = got == value.type or (precise and got == value.tensor_type.with_dtype(f64))
        check(fits, "WH1203", f"input '{value.name}' is {value.type}, got {got}",
              kind=UsageError)  # fmt: skip
        env[value] = _widen(np.asarray(array), carrier)
    remaining = {v: len(nodes) for v, nodes in graph.users.items()}
    keep = set(graph.outputs)
    for node in graph.nodes:
        args = tuple(_read(v, env, carrier) for v in node.inputs)
        try:
            results = run_node(node, args, carrier)
        except OperatorError as error:
            raise _located(error, graph, node) from None
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
    outputs = tuple(_read(v, env, carrier) for v in graph.outputs)
    return outputs if precise else _as_declared(graph.outputs, outputs)


def _located(error: OperatorError, graph: Graph, node: Node) -> OperatorError:
    """The error with the node that it comes from, and where its integers come from."""
    name = graph.names.get(node)
    details = [
        f"{argument} of {node.op.name} is {_origin(graph, value)}"
        for argument, value in zip(node.op.inputs, node.inputs)
        if error.code == "WH1302" and value.type.dtype.is_integer
    ]
    message = f"node '{name}': {error.message}" if name else error.message
    details = [*error.details, *details]
    return OperatorError(error.code, message, details=tuple(details), hint=error.hint)


def _origin(graph: Graph, value: Value) -> str:
    if isinstance(value, Input):
        return f"the input '{value.name}'"
    if isinstance(value, Result):
        name = graph.names.get(value.node)
        return f"computed by {value.node.op.name}" + (f" ('{name}')" if name else "")
    return "a constant"


def _read(value: Value, env: dict[Value, Array], carrier: DType | None) -> Array:
    return _widen(value.array, carrier) if isinstance(value, Constant) else env[value]


def _widen(array: Array, carrier: DType | None) -> Array:
    if carrier is None or not _is_widened(type_of(array).dtype, carrier):
        return array
    return array.astype(carrier.numpy)


def _is_widened(dtype: DType, carrier: DType) -> bool:
    return dtype.is_float and not dtype.is_storage_only and dtype.bits < carrier.bits


def _as_declared(values: Sequence[Value], arrays: Sequence[Array]) -> tuple[Array, ...]:
    """Carried values rounded to the types of the graph."""
    with np.errstate(over="ignore", invalid="ignore"):
        return tuple(
            a.astype(v.type.dtype.numpy, copy=False) for v, a in zip(values, arrays, strict=True)
        )


def run_node(node: Node, args: tuple[Array, ...], carrier: DType | None) -> tuple[Array, ...]:
    """The operator on carried inputs, with results that are carried on.

    `carrier` is the type in which floating-point values are carried, None for their own.

    Cases: (1) in f64, bodies among the attributes are widened too; (2) in f64, a cast between
    floating-point types changes nothing, because rounding is what that mode leaves out; (3) an
    operator that has no meaning for the carrier, or another one (the bits of a float), sees its
    declared types.
    """
    op = node.op
    if carrier is None:
        return op.run_reference(args)
    fields = {}
    if carrier == f64:
        if isinstance(op, Cast) and args[0].dtype == np.float64 and _is_widened(op.to, carrier):
            return args
        fields = {k: v.widened() for k, v in op.attributes().items() if isinstance(v, Body)}
    if fields:
        op = dataclasses.replace(op, **fields)  # type: ignore[type-var]
    elif not _means_the_same(node, args, carrier):
        args = _as_declared(node.inputs, args)
    return tuple(_widen(r, carrier) for r in op.run_reference(args))


def _means_the_same(node: Node, args: tuple[Array, ...], carrier: DType) -> bool:
    """Whether carried inputs give results of the declared shapes and kinds."""
    types = tuple(type_of(a) for a in args)
    if types == tuple(v.type for v in node.inputs):
        return True
    try:
        wide = node.op.infer_types(types)
    except WhetError:
        return False
    return all(
        _kind(w, carrier) == _kind(r.type, carrier) for w, r in zip(wide, node.results, strict=True)
    )


def _kind(t: OutputType, carrier: DType) -> tuple[Shape | int, str]:
    """The part of a type that widening keeps: the shape, and an element type not widened."""
    shape = t.shape if isinstance(t, TensorType) else t.rank
    wide = _is_widened(t.dtype, carrier) or t.dtype == carrier
    return shape, "float" if wide else t.dtype.name
