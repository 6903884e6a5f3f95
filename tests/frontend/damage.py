"""Ways to damage an ONNX model, and the worker that uses damaged ones under limits."""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from whet.core.errors import WhetError
from whet.core.types import TensorType
from whet.frontend.onnx import import_model
from whet.frontend.onnx.staging import run_stages
from whet.graph.interpret import interpret
from whet.graph.passes import optimize

MEMORY_LIMIT = 1 << 30
RUN_LIMIT = 1 << 22
"""Elements of all values of a model together."""
HUGE = (-1, 0, 1, 3, 1 << 20, 1 << 31, (1 << 62) + 1, -(1 << 63))

Rng = np.random.Generator


def damaged(model: Any, rng: Rng) -> bytes:
    """The bytes of the model after one to three random injuries."""
    data = bytes(model.SerializeToString())
    kind = rng.integers(10)
    if kind < 3:
        return _flip_bits(data, rng)
    if kind == 3:
        return data[: rng.integers(0, len(data))]
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for _ in range(rng.integers(1, 4)):
        _pick(INJURIES, rng)(changed.graph, rng)
    return bytes(changed.SerializeToString())


def _flip_bits(data: bytes, rng: Rng) -> bytes:
    array = np.frombuffer(data, np.uint8).copy()
    for _ in range(rng.integers(1, 9)):
        array[rng.integers(array.size)] ^= 1 << rng.integers(8)
    return array.tobytes()


def _pick(items: Any, rng: Rng) -> Any:
    return items[int(rng.integers(len(items)))] if len(items) else None


def _number(rng: Rng) -> int:
    return int(HUGE[rng.integers(len(HUGE))])


def _all_tensors(graph: Any) -> list[Any]:
    found = list(graph.initializer)
    for node in graph.node:
        found += [a.t for a in node.attribute if a.HasField("t")]
    return found


def _change_dims(graph: Any, rng: Rng) -> None:
    tensor = _pick(_all_tensors(graph), rng)
    if tensor is not None:
        size = max(len(tensor.dims), 1)
        tensor.dims[:] = [_number(rng) for _ in range(rng.integers(0, size + 2))]


def _change_type(graph: Any, rng: Rng) -> None:
    tensor = _pick(_all_tensors(graph), rng)
    if tensor is not None:
        tensor.data_type = int(rng.integers(0, 40))


def _change_values(graph: Any, rng: Rng) -> None:
    """Shapes, axes and indices that no longer fit: same tensor, other numbers."""
    tensor = _pick(_all_tensors(graph), rng)
    if tensor is not None and tensor.raw_data:
        tensor.raw_data = rng.bytes(len(tensor.raw_data))


def _change_input(graph: Any, rng: Rng) -> None:
    info = _pick([*graph.input, *graph.output, *graph.value_info], rng)
    if info is None:
        return
    tensor = info.type.tensor_type
    if rng.integers(2):
        tensor.elem_type = int(rng.integers(0, 40))
    elif len(tensor.shape.dim):
        _pick(tensor.shape.dim, rng).dim_value = _number(rng)


def _change_attribute(graph: Any, rng: Rng) -> None:
    node = _pick([n for n in graph.node if n.attribute], rng)
    if node is None:
        return
    attribute = _pick(node.attribute, rng)
    choice = rng.integers(4)
    if choice == 0:
        attribute.type = int(rng.integers(0, 15))
    elif attribute.type == onnx.AttributeProto.INT:
        attribute.i = _number(rng)
    elif attribute.type == onnx.AttributeProto.INTS:
        count = len(attribute.ints) + int(rng.integers(-1, 2))
        attribute.ints[:] = [_number(rng) for _ in range(count)]
    elif attribute.type == onnx.AttributeProto.STRING:
        attribute.s = rng.bytes(3)
    elif attribute.type == onnx.AttributeProto.FLOAT:
        attribute.f = float(_pick([np.inf, np.nan, 0.0, -1.0, 1e38], rng))


def _drop_attribute(graph: Any, rng: Rng) -> None:
    node = _pick([n for n in graph.node if n.attribute], rng)
    if node is not None:
        del node.attribute[int(rng.integers(len(node.attribute)))]


def _rewire(graph: Any, rng: Rng) -> None:
    """Another value as an input: wrong types, cycles, missing names."""
    names = [name for n in graph.node for name in (*n.input, *n.output)] + ["", "nowhere"]
    node = _pick([n for n in graph.node if n.input], rng)
    if node is not None:
        node.input[int(rng.integers(len(node.input)))] = _pick(names, rng)


def _change_arity(graph: Any, rng: Rng) -> None:
    node = _pick(graph.node, rng)
    if node is None:
        return
    if rng.integers(2) and len(node.input):
        del node.input[-1]
    elif len(node.input):
        node.input.append(node.input[0])
    else:
        node.output.append("extra")


def _change_operator(graph: Any, rng: Rng) -> None:
    node, other = _pick(graph.node, rng), _pick(graph.node, rng)
    if node is not None:
        names = ["Nothing", "Loop", "Add", "Reshape", "Conv", "Concat", other.op_type, "Scan"]
        node.op_type = _pick(names, rng)


def _point_outside(graph: Any, rng: Rng) -> None:
    tensor = _pick(_all_tensors(graph), rng)
    if tensor is None:
        return
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    location = _pick(["../x", "/etc/passwd", "a/../../x", "", "missing", "x\0y", "."], rng)
    for key, value in (("location", location), ("offset", str(_number(rng)))):
        tensor.external_data.add(key=key, value=value)


INJURIES: tuple[Callable[[Any, Rng], None], ...] = (
    _change_dims,
    _change_type,
    _change_values,
    _change_input,
    _change_attribute,
    _drop_attribute,
    _rewire,
    _change_arity,
    _change_operator,
    _point_outside,
)


def limit_memory() -> None:
    """Lets this process allocate at most 1 GiB more than it has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    now = pages * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + MEMORY_LIMIT, resource.RLIM_INFINITY))


def use_damaged(model: Any) -> str:
    """How importing, optimizing and running a damaged model ends, in a word.

    Anything but a `WhetError` passes through.  A model that is sound but large is not run.
    """
    try:
        imported = import_model(model)
        graph = optimize(imported.graph, numerics="real")
        values = [r.type for n in graph.nodes for r in n.results] + [v.type for v in graph.inputs]
        if sum(t.size for t in values if isinstance(t, TensorType)) < RUN_LIMIT:
            zeros = [np.zeros(v.tensor_type.shape, v.type.dtype.numpy) for v in graph.inputs]
            run_stages(imported, zeros, interpret)
    except WhetError as error:
        return error.code
    return "accepted"
