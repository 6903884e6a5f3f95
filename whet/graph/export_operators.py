"""The table from whet's operators to ONNX's, for `graph.export`.

    _direct(relu="Relu")             same inputs, no attributes

    @_exports("transpose")           everything else
    def _transpose(e: Emitter, node: Node, inputs: list[str]) -> Names:
        return e.emit("Transpose", inputs, perm=node.op.perm)

An exporter receives the emitter, the node and the ONNX names of its inputs, and gives the
names of the node's results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from whet.core.dtypes import DType, i64
from whet.core.types import Array, TensorType
from whet.graph.graph import Graph, Node, Value, make_input
from whet.graph.rewrite import bodies
from whet.ops.base import show_attribute

OPSET = 21
"""New enough for blocked quantization and 4-bit types, old enough for current runtimes."""
NATIVE_DOMAIN = "whet"
"""The domain of operators that ONNX does not have."""

_UNBOUNDED = -(1 << 62)
"""The stop of a backward slice that includes the first element."""

Names = Sequence[str]


class Emitter(Protocol):
    """The place where exporters write nodes; see `graph.export`."""

    def emit(
        self, op_type: str, inputs: Names, outputs: int = 1, domain: str = "", **attributes: Any
    ) -> Names:
        """The output names of a new node; an attribute that is None is left out."""

    def constant(self, array: Array) -> str:
        """The name of a new initializer."""

    def element_type(self, dtype: DType) -> int:
        """The ONNX number of an element type."""

    def body(self, graph: Graph, captured: Mapping[Value, str]) -> Any:
        """A subgraph; `captured` inputs are read from outside by name."""


Exporter = Callable[[Emitter, Any, list[str]], Names]
"""(emitter, node, input names) to result names; the node is typed Any because its operator is
the one that the exporter is registered for, so its attributes are known."""
EXPORTERS: dict[str, Exporter] = {}


def _exports(*names: str) -> Callable[[Exporter], Exporter]:
    def register(exporter: Exporter) -> Exporter:
        EXPORTERS.update(dict.fromkeys(names, exporter))
        return exporter

    return register


def _direct(**operators: str) -> None:
    """Operators with the same inputs in ONNX and no attributes."""
    for name, op_type in operators.items():
        EXPORTERS[name] = lambda e, node, inputs, t=op_type: e.emit(t, inputs)  # type: ignore[misc]


def _renamed(name: str, op_type: str, /, **attributes: str) -> None:
    """An operator with the same inputs and attributes of the same meaning: onnx="whet"."""

    def export(e: Emitter, node: Any, inputs: list[str]) -> Names:
        given = {onnx: getattr(node.op, own) for onnx, own in attributes.items()}
        return e.emit(op_type, inputs, len(node.results), **given)

    EXPORTERS[name] = export


def _ints(e: Emitter, values: Sequence[int] | int) -> str:
    return e.constant(np.asarray(values, np.int64))


# ---------------------------------------------------------------------------------- one to one
_direct(
    neg="Neg", abs="Abs", sign="Sign", exp="Exp", log="Log", sqrt="Sqrt", reciprocal="Reciprocal",
    floor="Floor", ceil="Ceil", round="Round", sin="Sin", cos="Cos", tan="Tan", asin="Asin",
    acos="Acos", atan="Atan", sinh="Sinh", cosh="Cosh", tanh="Tanh", asinh="Asinh",
    acosh="Acosh", atanh="Atanh", erf="Erf", add="Add", sub="Sub", mul="Mul", div="Div",
    pow="Pow", minimum="Min", maximum="Max", equal="Equal", less="Less",
    less_equal="LessOrEqual", greater="Greater", greater_equal="GreaterOrEqual",
    logical_and="And", logical_or="Or", logical_xor="Xor", logical_not="Not",
    bit_and="BitwiseAnd", bit_or="BitwiseOr", bit_xor="BitwiseXor", bit_not="BitwiseNot",
    isnan="IsNaN", where="Where", relu="Relu", sigmoid="Sigmoid", hard_swish="HardSwish",
    mish="Mish", softplus="Softplus", softsign="Softsign", matmul="MatMul", nonzero="NonZero",
    det="Det",
)  # fmt: skip

for _name, _op_type in {
    "leaky_relu": "LeakyRelu", "elu": "Elu", "celu": "Celu",
    "thresholded_relu": "ThresholdedRelu",
}.items():  # fmt: skip
    _renamed(_name, _op_type, alpha="alpha")
for _name, _op_type in {"argmax": "ArgMax", "argmin": "ArgMin"}.items():
    _renamed(_name, _op_type, axis="axis", keepdims="keepdims", select_last_index="select_last")

_WINDOW = {"kernel_shape": "kernel", "strides": "strides", "pads": "pads",
           "dilations": "dilations", "ceil_mode": "ceil_mode"}  # fmt: skip
_renamed("max_pool", "MaxPool", **_WINDOW)
_renamed("avg_pool", "AveragePool", count_include_pad="count_include_pad", **_WINDOW)
_renamed("lp_pool", "LpPool", p="p", **_WINDOW)
_renamed("selu", "Selu", alpha="alpha", gamma="gamma")
_renamed("hard_sigmoid", "HardSigmoid", alpha="alpha", beta="beta")
_renamed("gelu", "Gelu", approximate="approximate")
_renamed("shrink", "Shrink", bias="bias", lambd="lambd")
_renamed("isinf", "IsInf", detect_positive="positive", detect_negative="negative")
_renamed("einsum", "Einsum", equation="equation")
_renamed("transpose", "Transpose", perm="perm")
_renamed("concat", "Concat", axis="axis")
_renamed("gather", "Gather", axis="axis")
_renamed("gather_elements", "GatherElements", axis="axis")
_renamed("gather_nd", "GatherND", batch_dims="batch_dims")
_renamed("scatter_elements", "ScatterElements", axis="axis", reduction="reduction")
_renamed("scatter_nd", "ScatterND", reduction="reduction")
_renamed("reverse_sequence", "ReverseSequence", time_axis="time_axis", batch_axis="batch_axis")
_renamed("softmax", "Softmax", axis="axis")
_renamed("log_softmax", "LogSoftmax", axis="axis")
_renamed("batch_norm", "BatchNormalization", epsilon="epsilon")
_renamed("layer_norm", "LayerNormalization", axis="axis", epsilon="epsilon")
_renamed("instance_norm", "InstanceNormalization", epsilon="epsilon")
_renamed("group_norm", "GroupNormalization", num_groups="groups", epsilon="epsilon")
_renamed("lrn", "LRN", size="size", alpha="alpha", beta="beta", bias="bias")
_renamed("compress", "Compress", axis="axis")
_renamed("unique", "Unique", axis="axis", sorted="sorted")
_renamed("non_max_suppression", "NonMaxSuppression", center_point_box="centered")


# -------------------------------------------------------------------------------- element-wise
@_exports("cast")
def _cast(e: Emitter, node: Any, inputs: list[str]) -> Names:
    return e.emit("Cast", inputs, to=e.element_type(node.op.to), saturate=int(node.op.saturate))


@_exports("mod")
def _mod(e: Emitter, node: Any, inputs: list[str]) -> Names:
    """ONNX has no remainder with the sign of the divisor for floats: it is corrected to that."""
    dtype, (x, y) = node.inputs[0].type.dtype, inputs
    if node.op.fmod or not dtype.is_float:
        return e.emit("Mod", inputs, fmod=int(node.op.fmod))
    zero = e.constant(np.zeros((), dtype.numpy))
    (rest,) = e.emit("Mod", [x, y], fmod=1)
    signs_differ = e.emit("Xor", [*e.emit("Less", [rest, zero]), *e.emit("Less", [y, zero])])
    inexact = e.emit("Not", e.emit("Equal", [rest, zero]))
    wrong = e.emit("And", [*signs_differ, *inexact])
    return e.emit("Where", [*wrong, *e.emit("Add", [rest, y]), rest])


@_exports("shift_left", "shift_right")
def _shift(e: Emitter, node: Any, inputs: list[str]) -> Names:
    if node.inputs[0].type.dtype.kind != "uint":  # ONNX shifts unsigned numbers only
        return export_native(e, node, inputs)
    return e.emit("BitShift", inputs, direction="LEFT" if node.op.name == "shift_left" else "RIGHT")


@_exports("swish")
def _swish(e: Emitter, node: Any, inputs: list[str]) -> Names:
    """x * sigmoid(alpha * x): the operator itself is newer than the opset."""
    alpha = e.constant(np.asarray(node.op.alpha, node.inputs[0].type.dtype.numpy))
    return e.emit("Mul", [*inputs, *e.emit("Sigmoid", e.emit("Mul", [*inputs, alpha]))])


@_exports("prelu")
def _prelu(e: Emitter, node: Any, inputs: list[str]) -> Names:
    """ONNX broadcasts the slope only, so the input is expanded to the result's shape."""
    x, slope = inputs
    if node.inputs[0].type != node.results[0].type:
        (x,) = e.emit("Expand", [x, _ints(e, node.results[0].type.shape)])
    return e.emit("PRelu", [x, slope])


# ------------------------------------------------------------------------- products and windows
@_exports("conv", "conv_transpose")
def _conv(e: Emitter, node: Any, inputs: list[str]) -> Names:
    op = node.op
    return e.emit(
        "Conv" if op.name == "conv" else "ConvTranspose", inputs,
        kernel_shape=node.inputs[1].type.shape[2:], strides=op.strides, pads=op.pads,
        dilations=op.dilations, group=op.groups,
        output_padding=getattr(op, "output_padding", None),
    )  # fmt: skip


@_exports("deform_conv")
def _deform_conv(e: Emitter, node: Any, inputs: list[str]) -> Names:
    op, (x, w, offset, mask) = node.op, inputs
    return e.emit(
        "DeformConv", [x, w, offset, "", mask], kernel_shape=node.inputs[1].type.shape[2:],
        strides=op.strides, pads=op.pads, dilations=op.dilations, group=op.groups,
        offset_group=op.offset_groups,
    )  # fmt: skip


@_exports("max_pool_index")
def _max_pool_index(e: Emitter, node: Any, inputs: list[str]) -> Names:
    given = {onnx: getattr(node.op, own) for onnx, own in _WINDOW.items()}
    order = int(node.op.column_major)
    return e.emit("MaxPool", inputs, 2, storage_order=order, **given)[1:]


@_exports("col2im")
def _col2im(e: Emitter, node: Any, inputs: list[str]) -> Names:
    op = node.op
    shapes = [_ints(e, op.image), _ints(e, op.block)]
    return e.emit("Col2Im", [*inputs, *shapes], strides=op.strides, pads=op.pads,
                  dilations=op.dilations)  # fmt: skip


# ------------------------------------------------------------------------------- data movement
@_exports("reshape")
def _reshape(e: Emitter, node: Any, inputs: list[str]) -> Names:
    return e.emit("Reshape", [*inputs, _ints(e, node.op.shape)], allowzero=1)


@_exports("expand")
def _expand(e: Emitter, node: Any, inputs: list[str]) -> Names:
    return e.emit("Expand", [*inputs, _ints(e, node.op.shape)])


@_exports("tile")
def _tile(e: Emitter, node: Any, inputs: list[str]) -> Names:
    return e.emit("Tile", [*inputs, _ints(e, node.op.repeats)])


@_exports("split")
def _split(e: Emitter, node: Any, inputs: list[str]) -> Names:
    sizes = _ints(e, node.op.sizes)
    return e.emit("Split", [*inputs, sizes], len(node.results), axis=node.op.axis)


@_exports("slice")
def _slice(e: Emitter, node: Any, inputs: list[str]) -> Names:
    op = node.op
    stops = [_UNBOUNDED if stop < 0 else stop for stop in op.stops]
    axes = range(len(stops))
    where = (op.starts, stops, axes, op.steps)
    return e.emit("Slice", [*inputs, *(_ints(e, list(v)) for v in where)])


@_exports("pad")
def _pad(e: Emitter, node: Any, inputs: list[str]) -> Names:
    x, value = inputs
    return e.emit("Pad", [x, _ints(e, node.op.pads), value], mode=node.op.mode)


@_exports("trilu")
def _trilu(e: Emitter, node: Any, inputs: list[str]) -> Names:
    return e.emit("Trilu", [*inputs, _ints(e, node.op.k)], upper=int(node.op.upper))


@_exports("one_hot")
def _one_hot(e: Emitter, node: Any, inputs: list[str]) -> Names:
    indices, values = inputs
    return e.emit("OneHot", [indices, _ints(e, node.op.depth), values], axis=node.op.axis)


# ---------------------------------------------------------------------- reductions and selection
_REDUCTIONS = {"reduce_sum": "ReduceSum", "reduce_mean": "ReduceMean", "reduce_max": "ReduceMax",
               "reduce_min": "ReduceMin", "reduce_prod": "ReduceProd"}  # fmt: skip


@_exports(*_REDUCTIONS)
def _reduce(e: Emitter, node: Any, inputs: list[str]) -> Names:
    op = node.op
    return e.emit(_REDUCTIONS[op.name], [*inputs, _ints(e, op.axes)], keepdims=int(op.keepdims),
                  noop_with_empty_axes=1)  # fmt: skip


@_exports("cumsum")
def _cumsum(e: Emitter, node: Any, inputs: list[str]) -> Names:
    op = node.op
    return e.emit("CumSum", [*inputs, _ints(e, op.axis)], exclusive=int(op.exclusive),
                  reverse=int(op.reverse))  # fmt: skip


@_exports("top_k")
def _top_k(e: Emitter, node: Any, inputs: list[str]) -> Names:
    op = node.op
    return e.emit("TopK", [*inputs, _ints(e, [op.k])], 2, axis=op.axis, largest=int(op.largest))


# ---------------------------------------------------------------------- sampling of images
_renamed("grid_sample", "GridSample", mode="mode", padding_mode="padding",
         align_corners="align_corners")  # fmt: skip
_renamed("max_roi_pool", "MaxRoiPool", pooled_shape="output_size", spatial_scale="spatial_scale")


@_exports("roi_align")
def _roi_align(e: Emitter, node: Any, inputs: list[str]) -> Names:
    op = node.op
    return e.emit(
        "RoiAlign", inputs, mode=op.mode, output_height=op.output_size[0],
        output_width=op.output_size[1], sampling_ratio=op.sampling_ratio,
        spatial_scale=op.spatial_scale,
        coordinate_transformation_mode="half_pixel" if op.half_pixel else "output_half_pixel",
    )  # fmt: skip


@_exports("resize")
def _resize(e: Emitter, node: Any, inputs: list[str]) -> Names:
    """ONNX takes either the shape or the scales and derives the other."""
    op, old = node.op, node.inputs[0].type.shape
    scales = np.asarray(op.scales, np.float32)
    from_shape = [new / max(size, 1) for new, size in zip(op.shape, old)]
    if np.array_equal(scales, np.asarray(from_shape, np.float32)):
        extent = ["", _ints(e, op.shape)]
    elif [math.floor(size * float(s)) for size, s in zip(old, scales)] == list(op.shape):
        extent = [e.constant(scales)]
    else:
        return export_native(e, node, inputs)
    roi = e.constant(np.asarray(op.roi, np.float32)) if op.roi else ""
    return e.emit(
        "Resize", [*inputs, roi, *extent], mode=op.mode, nearest_mode=op.nearest,
        coordinate_transformation_mode=op.coordinates, cubic_coeff_a=op.cubic_coeff_a,
        exclude_outside=int(op.exclude_outside), antialias=int(op.antialias),
        extrapolation_value=op.extrapolation,
    )  # fmt: skip


# ------------------------------------------------------------------------------- quantization
@_exports("quantize_linear")
def _quantize(e: Emitter, node: Any, inputs: list[str]) -> Names:
    op, (x, scale, _) = node.op, (v.type.dtype for v in node.inputs)
    if scale != x or op.precision not in (None, scale):
        return export_native(e, node, inputs)
    return e.emit("QuantizeLinear", inputs, axis=op.axis, block_size=op.block_size,
                  saturate=int(op.saturate))  # fmt: skip


@_exports("dequantize_linear")
def _dequantize(e: Emitter, node: Any, inputs: list[str]) -> Names:
    op = node.op
    if node.inputs[1].type.dtype != op.to:
        return export_native(e, node, inputs)
    return e.emit("DequantizeLinear", inputs, axis=op.axis, block_size=op.block_size)


@_exports("random_uniform", "random_normal")
def _random(e: Emitter, node: Any, inputs: list[str]) -> Names:
    op = node.op
    bounds = ("low", "high") if op.name == "random_uniform" else ("mean", "scale")
    return e.emit(
        "RandomUniform" if op.name == "random_uniform" else "RandomNormal", inputs,
        shape=op.shape, dtype=e.element_type(op.dtype),
        seed=None if op.seed is None else float(op.seed),
        **{name: getattr(op, name) for name in bounds},
    )  # fmt: skip


# ------------------------------------------------------------------------------------ structure
@_exports("scan")
def _scan(e: Emitter, node: Any, inputs: list[str]) -> Names:
    """Values that every step sees whole are captured by name, as ONNX bodies do."""
    op, graph = node.op, bodies(node.op)["body"]
    scanned = len(op.input_axes)
    whole = op.states + scanned
    axes = list(op.input_axes)
    if not scanned:  # ONNX derives the number of steps from a scanned input
        graph, axes = _with_counter(graph, op.states), [0]
        inputs = [*inputs[:whole], _ints(e, range(op.length)), *inputs[whole:]]
        whole += 1
    return e.emit(
        "Scan", inputs[:whole], len(node.results),
        body=e.body(graph, dict(zip(graph.inputs[whole:], inputs[whole:]))),
        num_scan_inputs=len(axes),
        scan_input_axes=axes,
        scan_input_directions=[int(r) for r in op.reverse_inputs] or None,
        scan_output_axes=list(op.output_axes) or None,
        scan_output_directions=[int(r) for r in op.reverse_outputs] or None,
    )  # fmt: skip


@_exports("branch")
def _branch(e: Emitter, node: Any, inputs: list[str]) -> Names:
    then, other = (
        e.body(graph, dict(zip(graph.inputs, inputs[1:]))) for graph in bodies(node.op).values()
    )
    return e.emit("If", inputs[:1], len(node.results), then_branch=then, else_branch=other)


@_exports("while_loop", "collecting_loop")
def _open_loop(e: Emitter, node: Any, inputs: list[str]) -> Names:
    """An ONNX body also takes the number of its round and the condition."""
    op, graph = node.op, bodies(node.op)["body"]
    whole: dict[Value, str] = dict(zip(graph.inputs[op.states :], inputs[1 + op.states :]))
    going = make_input("going", graph.outputs[0].tensor_type)
    inner = Graph((going, *graph.inputs), graph.outputs, graph.output_names, graph.names)
    return e.emit(
        "Loop", ["", *inputs[: 1 + op.states]], len(node.results),
        body=e.body(_with_counter(inner, 0), whole),
    )  # fmt: skip


def _with_counter(graph: Graph, position: int) -> Graph:
    """The body with an input that it does not read at this position: the step's number."""
    counter = make_input("step", TensorType((), i64))
    inputs = (*graph.inputs[:position], counter, *graph.inputs[position:])
    return Graph(inputs, graph.outputs, graph.output_names, graph.names)


def export_native(e: Emitter, node: Node, inputs: list[str]) -> Names:
    """A node of the domain `whet`, with the attributes in the notation of graph text."""
    shown = ", ".join(f"{k}={show_attribute(v)}" for k, v in node.op.attributes().items())
    return e.emit(node.op.name, inputs, len(node.results), NATIVE_DOMAIN, attributes=shown)
