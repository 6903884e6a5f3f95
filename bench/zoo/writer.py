"""Writing an ONNX model node by node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from whet.core.types import Array

OPSET = 18
_IR_VERSION = 10


class Writer:
    """Collects nodes and seeded weights; values are named by strings.

    Weights keep the magnitude of activations about the same from layer to layer, so that
    errors mean something at the end of a deep network.
    """

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.inputs: list[Any] = []

    def input(self, name: str, shape: Sequence[int], dtype: int = TensorProto.FLOAT) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, dtype, list(shape)))
        return name

    def constant(self, array: Array) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def ints(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def number(self, value: float) -> str:
        return self.constant(np.array(value, np.float32))

    def normal(self, shape: Sequence[int], deviation: float, mean: float = 0.0) -> str:
        drawn = self.rng.standard_normal(tuple(shape), np.float32)
        return self.constant(drawn * np.float32(deviation) + np.float32(mean))

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        return self.nodes_with(op, inputs, 1, **attributes)[0]

    def nodes_with(
        self, op: str, inputs: Sequence[str], outputs: int, **attributes: Any
    ) -> list[str]:
        """The names of several results of one node."""
        names = [f"v{len(self.nodes)}_{k}" for k in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, names[0], **attributes))
        return names

    def model(self, *outputs: str) -> onnx.ModelProto:
        """The model with these results; their shapes are left to inference."""
        last = [helper.make_empty_tensor_value_info(o) for o in outputs]
        for value in last:
            value.type.tensor_type.elem_type = TensorProto.FLOAT
        graph = helper.make_graph(self.nodes, "network", self.inputs, last, self.weights)
        opsets = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION)
        return onnx.shape_inference.infer_shapes(model)

    # ------------------------------------------------------------------------------ layers
    def conv(
        self,
        x: str,
        cin: int,
        cout: int,
        kernel: int | tuple[int, ...],
        stride: int | tuple[int, ...] = 1,
        pad: int | tuple[int, ...] | None = None,
        groups: int = 1,
        relu: bool = True,
        dims: int = 2,
        bias: bool = True,
    ) -> str:
        """Convolution with bias (batch norm folded, as exporters do) and relu."""
        k = _each(kernel, dims)
        p = tuple(e // 2 for e in k) if pad is None else _each(pad, dims)
        fan = cin // groups * int(np.prod(k))
        w = self.normal((cout, cin // groups, *k), (1.5 / fan) ** 0.5)
        b = (self.normal((cout,), 0.05),) if bias else ()
        y = self.node("Conv", x, w, *b, kernel_shape=k, strides=_each(stride, dims),
                      pads=[*p, *p], group=groups)  # fmt: skip
        return self.node("Relu", y) if relu else y

    def linear(self, x: str, cin: int, cout: int, bias: bool = True) -> str:
        """x @ w + b over the last axis."""
        y = self.node("MatMul", x, self.normal((cin, cout), cin**-0.5))
        return self.node("Add", y, self.normal((cout,), 0.02)) if bias else y

    def classifier(self, x: str, cin: int, classes: int, dims: int = 2) -> str:
        """The mean over all pixels, then a dense layer."""
        axes = self.ints(*range(2, 2 + dims))
        y = self.node("ReduceMean", x, axes, keepdims=0)
        w, b = self.normal((classes, cin), cin**-0.5), self.normal((classes,), 0.02)
        return self.node("Gemm", y, w, b, transB=1)

    def layer_norm(self, x: str, width: int, epsilon: float) -> str:
        scale, bias = self.normal((width,), 0.1, mean=1.0), self.normal((width,), 0.02)
        return self.node("LayerNormalization", x, scale, bias, axis=-1, epsilon=epsilon)

    def max_pool(self, x: str, kernel: int, stride: int, pad: int = 0, ceil: bool = False) -> str:
        return self.node("MaxPool", x, kernel_shape=[kernel] * 2, strides=[stride] * 2,
                         pads=[pad] * 4, ceil_mode=int(ceil))  # fmt: skip

    def average_pool(self, x: str, kernel: int, stride: int, pad: int, count_pad: bool) -> str:
        return self.node("AveragePool", x, kernel_shape=[kernel] * 2, strides=[stride] * 2,
                         pads=[pad] * 4, count_include_pad=int(count_pad))  # fmt: skip


def _each(value: int | tuple[int, ...], dims: int) -> tuple[int, ...]:
    return (value,) * dims if isinstance(value, int) else value
