"""The alphabet: which operators, with which attributes, the generator tries on which values.

A `Letter` proposes operators for operands of given kinds; whether a proposal has a meaning is
for the operator's own `infer` to say.  Adding an operator to the alphabet is one letter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from whet.core.dtypes import f32
from whet.core.types import Shape
from whet.ops.activation import Gelu, Relu, Swish
from whet.ops.arithmetic import Add, Exp, Maximum, Minimum, Mul, Reciprocal, Sqrt, Sub
from whet.ops.base import Op
from whet.ops.conv import Conv, ConvTranspose
from whet.ops.matmul import MatMul
from whet.ops.movement import Concat, Expand, Reshape, Split, Transpose
from whet.ops.pool import AvgPool, MaxPool
from whet.ops.reduce import ReduceMax, ReduceMean, ReduceSum
from whet.ops.weights import (
    ConvIdentity,
    Enlarge,
    MatMulIdentity,
    MulIdentity,
    PoolWeight,
    Regroup,
)
from whet.superopt.generate.kinds import Kind

Propose = Callable[..., Iterator[Op]]


@dataclass(frozen=True, slots=True)
class Letter:
    """Operators of `arity` operands; `propose` is called with the kinds of the operands.

    With `symmetric`, one order of two operands is enough.
    """

    name: str
    arity: int
    propose: Propose
    symmetric: bool = False


@dataclass(frozen=True, slots=True)
class Alphabet:
    """Letters, and constants that any graph may contain."""

    letters: tuple[Letter, ...]
    constants: tuple[Op, ...] = ()

    def of_arity(self, arity: int) -> tuple[Letter, ...]:
        return tuple(x for x in self.letters if x.arity == arity)

    def with_letters(self, letters: Iterable[Letter]) -> Alphabet:
        """With further letters; those of a name that is there already are left out."""
        named = {x.name: x for x in self.letters}
        for letter in letters:
            named.setdefault(letter.name, letter)
        return Alphabet(tuple(named.values()), self.constants)


def letter_of(operator: type[Op]) -> Letter:
    """The letter that an operator's own samples make: their attributes, wherever types fit."""
    ops = tuple(dict.fromkeys(sample.op for sample in operator.samples()))

    def propose(*kinds: Kind) -> Iterator[Op]:
        yield from ops

    return Letter(operator.name, len(operator.inputs), propose)


# ---------------------------------------------------------------------------------- proposals
def _same_padding(kernel: Shape) -> Shape:
    """Half the kernel on both sides."""
    half = tuple((k - 1) // 2 for k in kernel)
    return (*half, *half)


def _is_weight(*kinds: Kind) -> bool:
    return all(k.role == "weight" for k in kinds)


def _element_wise(op: Op) -> Propose:
    def propose(a: Kind, b: Kind) -> Iterator[Op]:
        if a.shape == b.shape:
            yield op

    return propose


def _scalar_product(a: Kind, s: Kind) -> Iterator[Op]:
    if not s.shape and a.shape:
        yield Mul()


def _bound(op: Op) -> Propose:
    """A number that bounds an activation: what clip is made of."""

    def propose(a: Kind, s: Kind) -> Iterator[Op]:
        if not s.shape and a.shape and not _is_weight(a) and _is_weight(s):
            yield op

    return propose


def _vector(op: Op) -> Propose:
    """A constant along one axis of a tensor: a bias or a factor per channel.

    It lies along the channels of images, [1, C, 1, 1], or along the columns of matrices, [N] or
    [1, N].
    """

    def propose(a: Kind, v: Kind) -> Iterator[Op]:
        axis = 1 if len(a.shape) >= 4 and len(v.shape) > 1 else len(a.shape) - 1
        along = tuple(d if n == axis else 1 for n, d in enumerate(a.shape))
        is_vector = v.size > 1 and v.shape in (along, a.shape[-1:]) and _is_weight(v)
        if len(a.shape) >= 2 and is_vector and a.shape != v.shape:
            yield op

    return propose


def _matmul(a: Kind, b: Kind) -> Iterator[Op]:
    """Matrices, batches of them, or a batch with one matrix for all."""
    if (len(a.shape), len(b.shape)) in ((2, 2), (3, 3), (3, 2)) and a.shape[-1] == b.shape[-2]:
        yield MatMul()


def _matmul_of_heads(a: Kind, b: Kind) -> Iterator[Op]:
    """Batches of batches of matrices, with each other or with one matrix for all."""
    ranks = (len(a.shape), len(b.shape))
    alike = ranks == (4, 2) or (ranks == (4, 4) and a.shape[:2] == b.shape[:2])
    if alike and a.shape[-1] == b.shape[-2]:
        yield MatMul()


def _are_image_and_filters(x: Kind, w: Kind) -> bool:
    fit = len(x.shape) == len(w.shape) >= 4
    return fit and not _is_weight(x) and _is_weight(w)


def _conv(stride: int, padding: Callable[[Shape, Shape], Shape]) -> Propose:
    def propose(x: Kind, w: Kind) -> Iterator[Op]:
        if not _are_image_and_filters(x, w):
            return
        groups, rest = divmod(x.shape[1], w.shape[1])
        if not rest and w.shape[0] % groups == 0:
            pads, one = padding(x.shape[2:], w.shape[2:]), (1,) * (len(x.shape) - 2)
            yield Conv((stride,) * len(one), pads, one, groups)

    return propose


def _conv_transpose(stride: int) -> Propose:
    """With the padding that leaves `stride` times the extents of the image."""

    def propose(x: Kind, w: Kind) -> Iterator[Op]:
        if _are_image_and_filters(x, w) and x.shape[1] == w.shape[0]:
            kernel = w.shape[2:]
            pads, one = _same_padding(kernel), (1,) * len(kernel)
            more = tuple(stride - 1 if k % 2 else 0 for k in kernel)
            yield ConvTranspose((stride,) * len(one), pads, one, more)

    return propose


def half_kernel(image: Shape, kernel: Shape) -> Shape:
    """Padding by half the kernel on both sides: at stride 1 the image keeps its extents."""
    return _same_padding(kernel)


def no_padding(image: Shape, kernel: Shape) -> Shape:
    """The padding that TASO and TensorFlow call VALID."""
    return (0,) * (2 * len(kernel))


def at_the_end(stride: int) -> Callable[[Shape, Shape], Shape]:
    """The padding that ONNX and TensorFlow call SAME_UPPER: the odd one goes to the end."""

    def padding(image: Shape, kernel: Shape) -> Shape:
        total = [max((-(-i // stride) - 1) * stride + k - i, 0) for i, k in zip(image, kernel)]
        return (*(t // 2 for t in total), *(t - t // 2 for t in total))

    return padding


def _activation(op: Op) -> Propose:
    def propose(x: Kind) -> Iterator[Op]:
        if not _is_weight(x):
            yield op

    return propose


def _image(op: AvgPool | MaxPool) -> Propose:
    def propose(x: Kind) -> Iterator[Op]:
        if len(x.shape) == len(op.kernel) + 2 and not _is_weight(x):
            yield op

    return propose


def _transpose(x: Kind) -> Iterator[Op]:
    if len(x.shape) == 2:
        yield Transpose((1, 0))
    elif len(x.shape) == 3:
        yield Transpose((0, 2, 1))


def _concat(a: Kind, b: Kind) -> Iterator[Op]:
    if len(a.shape) != len(b.shape) or not a.shape:
        return
    # Images and filters are joined by batch and channels, not in space.
    yield from _joined(a, b, range(2 if len(a.shape) >= 4 else len(a.shape)))


def _split(x: Kind) -> Iterator[Op]:
    for axis, tree in enumerate(x.trees):
        if tree is not None:
            yield Split(axis, (tree.left, x.shape[axis] - tree.left))


def _enlarge(kernel: Shape) -> Propose:
    def propose(w: Kind) -> Iterator[Op]:
        if len(w.shape) == len(kernel) + 2 and _is_weight(w) and w.shape[2:] != kernel:
            yield Enlarge(kernel)

    return propose


def _regroup(channels: int) -> Propose:
    def propose(w: Kind) -> Iterator[Op]:
        if len(w.shape) != 4 or not _is_weight(w) or channels % w.shape[1]:
            return
        groups = channels // w.shape[1]
        if w.shape[0] % groups == 0:
            for merged in range(2, groups + 1):
                if groups % merged == 0:
                    yield Regroup(groups, merged)

    return propose


def _column(op: Op) -> Propose:
    """A column against every column of a matrix."""

    def propose(a: Kind, b: Kind) -> Iterator[Op]:
        if len(a.shape) >= 2 and a.shape[-1] > 1 and b.shape == (*a.shape[:-1], 1):
            yield op

    return propose


def _reduce_max(x: Kind) -> Iterator[Op]:
    if len(x.shape) >= 2 and not _is_weight(x):
        yield ReduceMax((len(x.shape) - 1,), True)


def _reduce(x: Kind) -> Iterator[Op]:
    if len(x.shape) >= 2 and not _is_weight(x):
        yield ReduceSum((len(x.shape) - 1,), True)
        yield ReduceMean((len(x.shape) - 1,), True)


def _flatten(x: Kind) -> Iterator[Op]:
    if len(x.shape) >= 3:
        yield Reshape((x.shape[0], x.size // x.shape[0]))


def _permute(x: Kind) -> Iterator[Op]:
    if len(x.shape) == 4:
        yield Transpose((0, 2, 3, 1))
        yield Transpose((0, 3, 1, 2))


def _broadcast(x: Kind) -> Iterator[Op]:
    if len(x.shape) == 2 and x.shape[1] == 1:
        yield Expand((x.shape[0], 4))


def _join_heads(a: Kind, b: Kind) -> Iterator[Op]:
    """Concat along the rows or columns of batches of batches of matrices."""
    if len(a.shape) == len(b.shape) == 4:
        yield from _joined(a, b, (2, 3))


def _joined(a: Kind, b: Kind, axes: Iterable[int]) -> Iterator[Op]:
    for axis in axes:
        if a.shape[:axis] + a.shape[axis + 1 :] == b.shape[:axis] + b.shape[axis + 1 :]:
            yield Concat(axis)


def _transpose_heads(x: Kind) -> Iterator[Op]:
    if len(x.shape) == 4:
        yield Transpose((0, 1, 3, 2))


# ----------------------------------------------------------------------------------- alphabets
Window = tuple[Shape, Shape, Shape, Shape]
"""Kernel, strides, pads and dilations."""


def _window(extent: int, stride: int, pad: int, axes: int = 2) -> Window:
    return (extent,) * axes, (stride,) * axes, (pad,) * (2 * axes), (1,) * axes


POOL = _window(3, 1, 1)


def _pools(suffix: str, window: Window) -> tuple[Letter, ...]:
    return (
        Letter(f"avg_pool_{suffix}", 1, _image(AvgPool(*window))),
        Letter(f"max_pool_{suffix}", 1, _image(MaxPool(*window))),
    )


CORE = (
    Letter("add", 2, _element_wise(Add()), symmetric=True),
    Letter("mul", 2, _element_wise(Mul()), symmetric=True),
    Letter("scale", 2, _scalar_product),
    Letter("matmul", 2, _matmul),
    Letter("conv", 2, _conv(1, half_kernel)),
    Letter("concat", 2, _concat),
    Letter("relu", 1, _activation(Relu())),
    Letter("transpose", 1, _transpose),
    Letter("enlarge", 1, _enlarge((3, 3))),
    Letter("regroup", 1, _regroup(4)),
    Letter("avg_pool", 1, _image(AvgPool(*POOL, count_include_pad=True))),
    Letter("avg_pool_inside", 1, _image(AvgPool(*POOL))),
    Letter("max_pool", 1, _image(MaxPool(*POOL))),
    Letter("split", 1, _split),
)

_REDUCE = Letter("reduce", 1, _reduce)
_SUBTRACT = Letter("subtract", 2, _element_wise(Sub()))
_COLUMNS = tuple(
    Letter(f"{op.name}_column", 2, _column(op)) for op in (Add(), Sub(), Mul())
)  # fmt: skip
_RECIPROCAL = Letter("reciprocal", 1, _activation(Reciprocal()))

EXTRA: dict[str, tuple[Letter, ...]] = {
    "vectors": (Letter("add_vector", 2, _vector(Add())), Letter("mul_vector", 2, _vector(Mul()))),
    "clip": (
        Letter("maximum_bound", 2, _bound(Maximum())),
        Letter("minimum_bound", 2, _bound(Minimum())),
    ),
    "heads": (
        Letter("matmul_heads", 2, _matmul_of_heads),
        Letter("concat_heads", 2, _join_heads),
        Letter("transpose_heads", 1, _transpose_heads),
    ),
    "volumes": (
        Letter("enlarge_volume", 1, _enlarge((3, 3, 3))),
        *_pools("volume", _window(3, 1, 1, axes=3)),
    ),
    "transposed": (
        Letter("conv_transpose", 2, _conv_transpose(1)),
        Letter("conv_transpose_strided", 2, _conv_transpose(2)),
    ),
    "strided_pools": _pools("strided", _window(2, 2, 0)),
    "strided": (Letter("conv_strided", 2, _conv(2, half_kernel)),),
    "same_upper": (Letter("conv_same_upper", 2, _conv(2, at_the_end(2))),),
    "valid": (Letter("conv_valid", 2, _conv(1, no_padding)),),
    "reduce": (_REDUCE,),
    "broadcast": (Letter("broadcast", 1, _broadcast), *_COLUMNS),
    "reshape": (Letter("flatten", 1, _flatten), Letter("permute", 1, _permute)),
    "opaque": (
        Letter("gelu", 1, _activation(Gelu())),
        Letter("silu", 1, _activation(Swish())),
    ),
    "softmax": (
        Letter("exp", 1, _activation(Exp())),
        Letter("reduce_max", 1, _reduce_max),
        _REDUCE,
        _RECIPROCAL,
        _SUBTRACT,
        *_COLUMNS,
    ),
    "layer_norm": (
        Letter("sqrt", 1, _activation(Sqrt())),
        _REDUCE,
        _RECIPROCAL,
        _SUBTRACT,
        *_COLUMNS,
    ),
}
"""Letters beyond TASO's, or that only some pools have a use for, by the name that asks for them:
biases and factors per channel, bounds, other ranks, strides and paddings, and what softmax and
layer normalization are made of."""


def constants(channels: int, matrix: int, image: Shape) -> tuple[Op, ...]:
    """C_pool, I_conv, I_matmul and I_ewmul for values of these extents."""
    return (
        PoolWeight(f32, channels, (3, 3)),
        ConvIdentity(f32, channels, (3, 3)),
        MatMulIdentity(f32, matrix),
        MulIdentity(f32, image),
    )
