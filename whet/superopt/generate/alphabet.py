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
from whet.ops.arithmetic import Add, Exp, Mul, Reciprocal, Sqrt, Sub
from whet.ops.base import Op
from whet.ops.conv import Conv
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


def _matmul(a: Kind, b: Kind) -> Iterator[Op]:
    """Matrices, batches of them, or a batch with one matrix for all."""
    if (len(a.shape), len(b.shape)) in ((2, 2), (3, 3), (3, 2)) and a.shape[-1] == b.shape[-2]:
        yield MatMul()


def _conv(stride: int, padding: Callable[[Shape, Shape], Shape]) -> Propose:
    def propose(x: Kind, w: Kind) -> Iterator[Op]:
        if len(x.shape) != 4 or len(w.shape) != 4 or _is_weight(x) or not _is_weight(w):
            return
        groups, rest = divmod(x.shape[1], w.shape[1])
        if not rest and w.shape[0] % groups == 0:
            pads = padding(x.shape[2:], w.shape[2:])
            yield Conv((stride, stride), pads, (1, 1), groups)

    return propose


def half_kernel(image: Shape, kernel: Shape) -> Shape:
    """Padding by half the kernel on both sides: at stride 1 the image keeps its extents."""
    return _same_padding(kernel)


def no_padding(image: Shape, kernel: Shape) -> Shape:
    """The padding that TASO and TensorFlow call VALID."""
    return (0, 0, 0, 0)


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


def _image(op: Op) -> Propose:
    def propose(x: Kind) -> Iterator[Op]:
        if len(x.shape) == 4 and not _is_weight(x):
            yield op

    return propose


def _transpose(x: Kind) -> Iterator[Op]:
    if len(x.shape) == 2:
        yield Transpose((1, 0))
    elif len(x.shape) == 3:
        yield Transpose((0, 2, 1))


def _concat(a: Kind, b: Kind) -> Iterator[Op]:
    if len(a.shape) != len(b.shape) or len(a.shape) < 2:
        return
    # Images and filters are joined by batch and channels, not in space.
    for axis in range(2 if len(a.shape) == 4 else len(a.shape)):
        if a.shape[:axis] + a.shape[axis + 1 :] == b.shape[:axis] + b.shape[axis + 1 :]:
            yield Concat(axis)


def _split(x: Kind) -> Iterator[Op]:
    for axis, tree in enumerate(x.trees):
        if tree is not None:
            yield Split(axis, (tree.left, x.shape[axis] - tree.left))


def _enlarge(kernel: Shape) -> Propose:
    def propose(w: Kind) -> Iterator[Op]:
        if len(w.shape) == 4 and _is_weight(w) and w.shape[2:] != kernel:
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


# ----------------------------------------------------------------------------------- alphabets
POOL = ((3, 3), (1, 1), (1, 1, 1, 1), (1, 1))

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
other strides and paddings, and what softmax and layer normalization are made of."""


def constants(channels: int, matrix: int, image: Shape) -> tuple[Op, ...]:
    """C_pool, I_conv, I_matmul and I_ewmul for values of these extents."""
    return (
        PoolWeight(f32, channels, (3, 3)),
        ConvIdentity(f32, channels, (3, 3)),
        MatMulIdentity(f32, matrix),
        MulIdentity(f32, image),
    )
