"""Cutting models: fewer outputs, values instead of what computes them, what nobody reads left out.

All functions give new models; the given one stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tools.graph_fuzz.case import Case
from tools.graph_fuzz.schemas import TO_ONNX
from whet.core.errors import WhetError
from whet.core.types import Array, type_of
from whet.frontend.onnx import import_model
from whet.frontend.onnx.staging import run_stages
from whet.frontend.onnx.structure import names_read
from whet.graph.interpret import interpret


def copied(model: Any) -> Any:
    made: Any = onnx.ModelProto()
    made.CopyFrom(model)
    return made


def tidied(model: Any, inputs: Mapping[str, Array]) -> tuple[Any, dict[str, Array]]:
    """The model without nodes, constants and inputs that no output needs, and its inputs."""
    made = copied(model)
    graph = made.graph
    needed = {o.name for o in graph.output}
    kept = []
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            kept.append(node)
            needed.update(names_read(node))
    nodes = kept[::-1]
    del graph.node[:]
    graph.node.extend(nodes)
    for field in (graph.initializer, graph.input):
        items = [x for x in field if x.name in needed]
        del field[:]
        field.extend(items)
    return made, {i.name: inputs[i.name] for i in graph.input if i.name in inputs}


def with_outputs(case: Case, names: Sequence[str]) -> Case:
    """The model with only these values as outputs."""
    made = copied(case.model)
    known = {o.name: o for o in made.graph.output}
    infos = [known.get(n) or helper.make_empty_tensor_value_info(n) for n in names]
    infos = [_copied_info(i) for i in infos]
    del made.graph.output[:]
    made.graph.output.extend(infos)
    return _case(case, made, case.inputs)


def _copied_info(info: Any) -> Any:
    made: Any = onnx.ValueInfoProto()
    made.CopyFrom(info)
    return made


def with_value(case: Case, name: str, array: Array, *, constant: bool = False) -> Case:
    """The model with a value given (or constant) instead of computed."""
    made = copied(case.model)
    for node in made.graph.node:
        for n, output in enumerate(node.output):
            if output == name:
                node.output[n] = f"{name}_unused"
    outputs = {o.name for o in made.graph.output}
    if name in outputs:  # an input cannot be an output as well
        for o in made.graph.output:
            if o.name == name:
                o.name = f"{name}_out"
        made.graph.node.append(helper.make_node("Identity", [name], [f"{name}_out"]))
    inputs = dict(case.inputs)
    if constant:
        made.graph.initializer.append(numpy_helper.from_array(array, name))
    else:
        made.graph.input.append(value_info(name, array))
        inputs[name] = array
    return _case(case, made, inputs)


def value_info(name: str, array: Array) -> Any:
    return helper.make_tensor_value_info(name, TO_ONNX[type_of(array).dtype], array.shape)


def with_replaced_reads(case: Case, old: str, new: str) -> Case:
    """The model with one value read instead of another, bodies included."""
    made = copied(case.model)
    _replace_reads(made.graph, old, new)
    for o in made.graph.output:
        if o.name == old:
            fresh = f"{old}_out"
            o.name = fresh
            made.graph.node.append(helper.make_node("Identity", [new], [fresh]))
    return _case(case, made, case.inputs)


def _replace_reads(graph: Any, old: str, new: str) -> None:
    for node in graph.node:
        for n, name in enumerate(node.input):
            if name == old:
                node.input[n] = new
        for a in node.attribute:
            if a.HasField("g"):
                _replace_reads(a.g, old, new)


def without_attribute(case: Case, node: int, attribute: int) -> Case:
    made = copied(case.model)
    del made.graph.node[node].attribute[attribute]
    return _case(case, made, case.inputs)


def without_last_input(case: Case, node: int) -> Case:
    made = copied(case.model)
    del made.graph.node[node].input[-1]
    return _case(case, made, case.inputs)


def with_arrays(case: Case, arrays: Mapping[str, Array]) -> Case:
    """The model with other arrays for some of its inputs and constants; shapes may differ."""
    made = copied(case.model)
    inputs = dict(case.inputs)
    for n, tensor in enumerate(made.graph.initializer):
        if tensor.name in arrays:
            made.graph.initializer[n].CopyFrom(
                numpy_helper.from_array(arrays[tensor.name], tensor.name)
            )
    for n, info in enumerate(made.graph.input):
        if info.name in arrays:
            inputs[info.name] = arrays[info.name]
            made.graph.input[n].CopyFrom(value_info(info.name, arrays[info.name]))
    for o in made.graph.output:
        o.CopyFrom(helper.make_empty_tensor_value_info(o.name))
    return _case(case, made, inputs)


def arrays_of(case: Case) -> dict[str, Array]:
    """All inputs and constants by name."""
    constants = {t.name: np.array(numpy_helper.to_array(t)) for t in case.model.graph.initializer}
    return {**constants, **case.inputs}


def _case(case: Case, model: Any, inputs: Mapping[str, Array]) -> Case:
    made, kept = tidied(model, inputs)
    return Case(made, kept, case.variant)


def intermediate_values(case: Case) -> dict[str, Array]:
    """What every node at the top of the model gives, as far as that can be found out."""
    names = [o for node in case.model.graph.node for o in node.output if o]
    found: dict[str, Array] = {}
    for name in names:
        try:
            found[name] = next(_values(with_outputs(case, [name]), [name]))
        except (WhetError, StopIteration, AssertionError, ValueError, TypeError, IndexError):
            continue
    return found


def _values(case: Case, names: Sequence[str]) -> Iterator[Array]:
    imported = import_model(case.model, case.inputs)
    flat = imported.flatten([case.inputs[p.name] for p in imported.arguments])
    for _, value in zip(names, run_stages(imported, flat, interpret)):
        if isinstance(value, np.ndarray):  # and no sequence
            yield np.array(value)
