"""ONNX models as torch modules: the operators of the networks benchmarked here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - everybody's name for it

from harness.onnx_nodes import Function, Make, Node, Steps, read_steps
from whet.core.types import Array


class Translated(torch.nn.Module):
    """Runs the steps; weights are buffers, so that compilers may treat them as constant."""

    def __init__(self, steps: Steps) -> None:
        super().__init__()
        self.steps = steps
        self.names: list[tuple[str, str]] = []
        for n, (name, array) in enumerate(steps.constants.items()):
            self.register_buffer(f"weight{n}", torch.from_numpy(array))
            self.names.append((name, f"weight{n}"))

    def forward(self, *inputs: Any) -> Any:
        values = {name: getattr(self, buffer) for name, buffer in self.names}
        values.update(zip(self.steps.inputs, inputs))
        return self.steps.run(values)


def translated(path: str) -> Translated:
    """The model, to be called with tensors."""
    return Translated(read_steps(path, TABLE))


def channels_last(module: Translated) -> Translated:
    """The module with the weights of its convolutions stored channels last."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    for name, buffer in list(module.named_buffers()):
        if buffer.ndim in formats and buffer.is_floating_point():
            setattr(module, name, buffer.contiguous(memory_format=formats[buffer.ndim]))
    return module


def prepacked(module: Translated, inputs: Mapping[str, Array]) -> Translated:
    """A chain of Conv -> Relu as calls of oneDNN on weights in oneDNN's own order.

    conv(x, w, b), relu  ->  convolution_pointwise(x, packed w, b, "relu")

    This is what torch.compile makes of them; a model of anything else is refused.
    """
    shape = list(next(iter(inputs.values())).shape)
    steps = []
    for conv, relu in zip(module.steps.steps[::2], module.steps.steps[1::2], strict=True):
        pieces = conv.function
        if not isinstance(pieces, Convolution) or relu.function is not torch.relu:
            raise NotImplementedError("only convolutions with relu are prepacked")
        weight = torch.from_numpy(module.steps.constants[conv.inputs[1]])
        packed = PrepackedConvolution(pieces, weight, shape)
        shape = list(packed(torch.zeros(shape), None, _bias(module, conv.inputs[2])).shape)
        steps.append(replace(conv, function=packed, outputs=relu.outputs, dead=relu.dead))
    module.steps = replace(module.steps, steps=tuple(replace(s, dead=()) for s in steps))
    return module


def _bias(module: Translated, name: str) -> Any:
    return torch.from_numpy(module.steps.constants[name])


class Convolution:
    """The arguments of a convolution whose padding is equal on both sides."""

    def __init__(self, node: Node) -> None:
        rank = node.weight_rank() - 2
        self.rank = rank
        begins, ends = node.pads(rank)
        self.even = begins == ends
        self.padding = begins if self.even else [0] * rank
        self.border = [p for b, e in zip(begins[::-1], ends[::-1]) for p in (b, e)]
        self.stride = list(node.attributes.get("strides", [1] * rank))
        self.dilation = list(node.attributes.get("dilations", [1] * rank))
        self.groups = int(node.attributes.get("group", 1))

    def __call__(self, x: Any, w: Any, b: Any = None) -> Any:
        if not self.even:
            x = F.pad(x, self.border)
        run = (F.conv1d, F.conv2d, F.conv3d)[self.rank - 1]
        return run(x, w, b, self.stride, self.padding, self.dilation, self.groups)


class PrepackedConvolution:
    """The same through oneDNN, with relu; the weights that it is called with are ignored."""

    def __init__(self, c: Convolution, weight: Any, shape: list[int]) -> None:
        self.rest = (c.padding, c.stride, c.dilation, c.groups)
        last = weight.contiguous(memory_format=torch.channels_last)
        self.weight = torch.ops.mkldnn._reorder_convolution_weight(last, *self.rest, shape)

    def __call__(self, x: Any, w: Any, b: Any = None) -> Any:
        return torch.ops.mkldnn._convolution_pointwise(
            x, self.weight, b, *self.rest, "relu", [], ""
        )


def _transposed_convolution(node: Node) -> Function:
    rank = node.weight_rank() - 2
    begins, _ = node.pads(rank)
    strides = list(node.attributes.get("strides", [1] * rank))
    groups = int(node.attributes.get("group", 1))
    run = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[rank - 1]
    return lambda x, w, b=None: run(x, w, b, strides, begins, 0, groups)


def _window(node: Node) -> tuple[list[int], list[int], list[int], bool]:
    kernel = list(node.attributes["kernel_shape"])
    rank = len(kernel)
    begins, ends = node.pads(rank)
    ceil = bool(node.attributes.get("ceil_mode", 0))
    if begins != ends:
        raise NotImplementedError("pooling with uneven padding")
    return kernel, list(node.attributes.get("strides", [1] * rank)), begins, ceil


def _max_pool(node: Node) -> Function:
    kernel, strides, padding, ceil = _window(node)
    run = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[len(kernel) - 1]
    return lambda x: run(x, kernel, strides, padding, 1, ceil)


def _average_pool(node: Node) -> Function:
    kernel, strides, padding, ceil = _window(node)
    counted = bool(node.attributes.get("count_include_pad", 0))
    run = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[len(kernel) - 1]
    return lambda x: run(x, kernel, strides, padding, ceil, counted)


def _layer_norm(node: Node) -> Function:
    axis, epsilon = node.attributes.get("axis", -1), node.attributes.get("epsilon", 1e-5)
    return lambda x, w, b=None: F.layer_norm(x, x.shape[axis:], w, b, epsilon)


def _batch_norm(node: Node) -> Function:
    epsilon = node.attributes.get("epsilon", 1e-5)
    return lambda x, s, b, m, v: F.batch_norm(x, m, v, s, b, False, 0.0, epsilon)


def _gemm(node: Node) -> Function:
    first, second = node.attributes.get("transA", 0), node.attributes.get("transB", 0)
    alpha, beta = node.attributes.get("alpha", 1.0), node.attributes.get("beta", 1.0)

    def run(a: Any, b: Any, c: Any = None) -> Any:
        a, b = (a.T if first else a), (b.T if second else b)
        if c is None:
            return alpha * (a @ b)
        return torch.addmm(c, a, b, alpha=alpha, beta=beta)

    return run


def _mean(node: Node) -> Function:
    axes, keep = node.ints(1, "axes"), bool(node.attributes.get("keepdims", 1))
    return lambda x, _=None: x.mean(axes, keepdim=keep)


def _norm(node: Node) -> Function:
    axes, keep = node.ints(1, "axes"), bool(node.attributes.get("keepdims", 1))
    return lambda x, _=None: torch.linalg.vector_norm(x, dim=axes, keepdim=keep)


def _softmax(node: Node) -> Function:
    axis = node.attributes.get("axis", -1)
    return lambda x: torch.softmax(x, axis)


def _concat(node: Node) -> Function:
    axis = node.attributes["axis"]
    return lambda *xs: torch.cat(xs, axis)


def _split(node: Node) -> Function:
    axis, sizes = node.attributes.get("axis", 0), node.ints(1)
    count = node.attributes.get("num_outputs", len(node.outputs))
    if sizes is None:
        return lambda x, _=None: torch.chunk(x, count, axis)
    return lambda x, _=None: torch.split(x, sizes, axis)


def _reshape(node: Node) -> Function:
    shape = node.ints(1)
    assert shape is not None
    if 0 not in shape:
        return lambda x, _: x.reshape(shape)
    return lambda x, _: x.reshape([d or x.shape[n] for n, d in enumerate(shape)])


def _transpose(node: Node) -> Function:
    perm = list(node.attributes["perm"])
    return lambda x: x.permute(perm)


def _unsqueeze(node: Node) -> Function:
    axes = node.ints(1, "axes") or []

    def run(x: Any, _: Any = None) -> Any:
        for axis in sorted(axes):
            x = x.unsqueeze(axis)
        return x

    return run


def _expand(node: Node) -> Function:
    shape = node.ints(1)
    assert shape is not None
    # In ONNX a 1 leaves the extent alone, which torch spells -1.
    wanted = [-1 if d == 1 else d for d in shape]
    return lambda x, _: x.expand(wanted)


def _slice(node: Node) -> Function:
    starts, ends, axes, steps = (node.ints(k) for k in range(1, 5))
    assert starts is not None
    assert ends is not None
    axes = list(range(len(starts))) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps

    def run(x: Any, *_: Any) -> Any:
        for start, end, axis, step in zip(starts, ends, axes, steps):
            where = [slice(None)] * x.ndim
            where[axis] = slice(start, min(end, x.shape[axis]), step)
            x = x[tuple(where)]
        return x

    return run


def _pad(node: Node) -> Function:
    pads, value = node.ints(1), node.number(2) or 0.0
    assert pads is not None
    half = len(pads) // 2
    border = [p for b, e in zip(pads[:half][::-1], pads[half:][::-1]) for p in (b, e)]
    return lambda x, *_: F.pad(x, border, value=value)


def _gather(node: Node) -> Function:
    axis = node.attributes.get("axis", 0)
    fixed = node.constants.get(node.inputs[1])
    if fixed is not None and fixed.ndim == 0:
        index = int(fixed)
        return lambda x, _: x.select(axis, index)
    if axis == 0:
        return lambda x, i: F.embedding(i, x) if x.ndim == 2 else x[i]
    return lambda x, i: torch.index_select(x, axis, i.reshape(-1)).reshape(
        *x.shape[:axis], *i.shape, *x.shape[axis + 1 :]
    )


def _clip(node: Node) -> Function:
    low, high = node.number(1), node.number(2)
    return lambda x, *_: torch.clamp(x, low, high)


def _gelu(node: Node) -> Function:
    how = node.attributes.get("approximate", b"none").decode()
    return lambda x: F.gelu(x, approximate=how)


def _plain(function: Callable[..., Any]) -> Make:
    return lambda node: function


TABLE: dict[str, Make] = {
    "Conv": Convolution,
    "ConvTranspose": _transposed_convolution,
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
    "GlobalAveragePool": _plain(lambda x: x.mean(tuple(range(2, x.ndim)), keepdim=True)),
    "LayerNormalization": _layer_norm,
    "BatchNormalization": _batch_norm,
    "Gemm": _gemm,
    "MatMul": _plain(torch.matmul),
    "ReduceMean": _mean,
    "ReduceL2": _norm,
    "Softmax": _softmax,
    "Concat": _concat,
    "Split": _split,
    "Reshape": _reshape,
    "Flatten": lambda node: lambda x: x.flatten(node.attributes.get("axis", 1)),
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    "Expand": _expand,
    "Slice": _slice,
    "Pad": _pad,
    "Gather": _gather,
    "Clip": _clip,
    "Gelu": _gelu,
    "Add": _plain(torch.add),
    "Sub": _plain(torch.sub),
    "Mul": _plain(torch.mul),
    "Div": _plain(torch.div),
    "Pow": _plain(torch.pow),
    "Relu": _plain(torch.relu),
    "Sigmoid": _plain(torch.sigmoid),
    "Tanh": _plain(torch.tanh),
    "Erf": _plain(torch.erf),
    "Exp": _plain(torch.exp),
    "Sqrt": _plain(torch.sqrt),
    "Neg": _plain(torch.neg),
    "Reciprocal": _plain(torch.reciprocal),
}
