"""Small graphs of all kinds, for which every target has to make right code.

None needs a function of the C library, which foreign programs here do not have.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from whet.build.kernels import Schedule
from whet.core.cpu import CpuTarget
from whet.core.dtypes import DType, bf16, f16, f32, f64, i8, i32, i64, u8
from whet.core.types import Array, TensorType
from whet.graph.build import GraphBuilder
from whet.graph.graph import Graph, Input, Value
from whet.ops.activation import Gelu, Relu, Sigmoid
from whet.ops.arithmetic import Add, Div, Erf, Exp, Log, Maximum, Mod, Mul, Sqrt, Sub, Tanh
from whet.ops.base import Op
from whet.ops.casting import Cast
from whet.ops.conv import Conv, ConvTranspose
from whet.ops.cumulative import CumSum
from whet.ops.gather import Gather
from whet.ops.logic import ShiftLeft, ShiftRight
from whet.ops.matmul import MatMul
from whet.ops.movement import Concat, Reshape, Slice, Transpose
from whet.ops.normalize import LayerNorm
from whet.ops.pool import AvgPool, MaxPool
from whet.ops.quantize import DequantizeLinear, QuantizeLinear
from whet.ops.reduce import ReduceMax, ReduceMean
from whet.ops.select import TopK
from whet.ops.softmax import Softmax
from whet.schedule.program.kernel import Kernel
from whet.schedule.space.registry import choices
from whet.tasks.task import Task


@dataclass
class Drawing:
    """A graph under construction, with random arrays for its inputs and constants."""

    rng: np.random.Generator
    builder: GraphBuilder = field(default_factory=GraphBuilder)
    inputs: list[Input] = field(default_factory=list)
    arrays: list[Array] = field(default_factory=list)

    def draw(self, shape: tuple[int, ...], dtype: DType) -> Array:
        if dtype.is_float:
            return self.rng.uniform(-1, 1, shape).astype(dtype.numpy)
        info = np.iinfo(dtype.numpy)
        low, high = max(info.min, -100_000), min(info.max, 100_000)
        return self.rng.integers(low, high, shape, endpoint=True).astype(dtype.numpy)

    def x(self, *shape: int, dtype: DType = f32) -> Value:
        """An input."""
        self.arrays.append(self.draw(shape, dtype))
        self.inputs.append(self.builder.input(f"x{len(self.inputs)}", TensorType(shape, dtype)))
        return self.inputs[-1]

    def w(self, *shape: int, dtype: DType = f32) -> Value:
        """A constant."""
        return self.builder.constant(self.draw(shape, dtype))

    def full(self, value: float, *shape: int, dtype: DType = f32) -> Value:
        return self.builder.constant(np.full(shape, value, dtype.numpy))

    def __call__(self, op: Op, *values: Value) -> Value:
        return self.builder.one(op, *values)

    def chain(self, value: Value, *ops: Op) -> Value:
        for op in ops:
            value = self(op, value)
        return value


def sketch_first(target: CpuTarget, name: str = "") -> Schedule:
    """The default schedule, except that a sketch of the given name wins where it fits."""

    def schedule(task: Task, symbol: str) -> Kernel:
        found = list(choices(task, target, 1, "real"))
        named = [c for c in found if c.sketch.name == name]
        return min(named or found, key=lambda c: c.nanoseconds).kernel(symbol)

    return schedule


Draw = Callable[[Drawing], list[Value]]
EXAMPLES: dict[str, Draw] = {}


def example(draw: Draw) -> Draw:
    """Adds a graph under the name of its function."""
    EXAMPLES[draw.__name__] = draw
    return draw


def make_example(name: str) -> tuple[Graph, tuple[Array, ...]]:
    """The graph of that name, and arrays for its inputs."""
    d = Drawing(np.random.default_rng(sum(name.encode())))
    outputs = EXAMPLES[name](d)
    names = tuple(f"y{n}" for n in range(len(outputs)))
    return Graph(tuple(d.inputs), tuple(outputs), names), tuple(d.arrays)


def _conv(pad: int = 1, stride: int = 1, groups: int = 1) -> Conv:
    return Conv((stride, stride), (pad,) * 4, (1, 1), groups)


# --------------------------------------------------------------------------------- contractions
@example
def matmul(d: Drawing) -> list[Value]:
    return [d(MatMul(), d.x(61, 96), d.w(96, 52))]


@example
def dense(d: Drawing) -> list[Value]:
    return [d(Relu(), d(Add(), d(MatMul(), d.x(7, 40), d.w(40, 33)), d.w(33)))]


@example
def product_of_inputs(d: Drawing) -> list[Value]:
    """The second factor lies the right way round, then the wrong one."""
    left, other = d.x(21, 30), d(Transpose((1, 0)), d.x(26, 30))
    return [d(MatMul(), left, d.x(30, 26)), d(MatMul(), left, other)]


@example
def batched_product(d: Drawing) -> list[Value]:
    return [d(MatMul(), d.x(3, 2, 9, 11), d.x(3, 1, 11, 13))]


@example
def convolution(d: Drawing) -> list[Value]:
    y = d(_conv(), d.x(1, 6, 13, 14), d.w(20, 6, 3, 3))
    return [d(Relu(), d(Add(), d(Add(), y, d.w(20, 1, 1)), d.x(1, 20, 13, 14)))]


@example
def strided_convolution(d: Drawing) -> list[Value]:
    return [d(_conv(2, 2), d.x(2, 3, 15, 17), d.w(10, 3, 5, 5))]


@example
def winograd(d: Drawing) -> list[Value]:
    return [d(Relu(), d(_conv(), d.x(1, 8, 14, 15), d.w(12, 8, 3, 3)))]


@example
def depthwise(d: Drawing) -> list[Value]:
    return [d(Relu(), d(_conv(groups=11), d.x(1, 11, 12, 13), d.w(11, 1, 3, 3)))]


@example
def grouped_convolution(d: Drawing) -> list[Value]:
    return [d(_conv(groups=3), d.x(1, 12, 8, 9), d.w(18, 4, 3, 3))]


@example
def transposed_convolution(d: Drawing) -> list[Value]:
    op = ConvTranspose((2, 2), (1,) * 4, (1, 1), (1, 1))
    return [d(op, d.x(1, 6, 7, 8), d.w(6, 9, 3, 3))]


# -------------------------------------------------------------------------- rows, windows, moves
@example
def softmax(d: Drawing) -> list[Value]:
    return [d(Softmax(1), d(Mul(), d.x(5, 37), d.full(8)))]


@example
def layer_norm(d: Drawing) -> list[Value]:
    return [d(LayerNorm(1), d.x(6, 45), d.w(45), d.w(45))]


@example
def reductions(d: Drawing) -> list[Value]:
    x = d.x(9, 10, 11)
    return [d(ReduceMean((0, 2)), x), d(ReduceMax((1,), True), x)]


@example
def pooling(d: Drawing) -> list[Value]:
    x, window = d.x(1, 5, 11, 12), ((3, 3), (2, 2), (1,) * 4, (1, 1))
    return [d(MaxPool(*window), x), d(AvgPool(*window), x)]


@example
def movement(d: Drawing) -> list[Value]:
    x = d.x(4, 5, 6)
    joined = d(Concat(0), d(Transpose((2, 1, 0)), x), d(Reshape((6, 5, 4)), x))
    return [d(Slice((1, 0, 3), (12, 5, 0), (2, 1, -1)), joined)]


@example
def gather(d: Drawing) -> list[Value]:
    indices = d.builder.constant(np.array([3, -1, 0, 7, 7], np.int64))
    return [d(Gather(1), d.x(3, 9, 5), indices)]


@example
def loop_programs(d: Drawing) -> list[Value]:
    """Operators with loops of their own."""
    x = d.x(4, 19)
    return [d(CumSum(1), x), *d.builder.results(TopK(1, 5), x)]


# --------------------------------------------------------------------------- scalar functions
@example
def functions(d: Drawing) -> list[Value]:
    x = d(Mul(), d.x(203), d.full(20))
    positive = d(Exp(), x)
    return [positive, d(Log(), positive), d(Sqrt(), positive),
            *(d(op, x) for op in (Tanh(), Sigmoid(), Erf(), Gelu()))]  # fmt: skip


@example
def functions_at_the_ends(d: Drawing) -> list[Value]:
    """Overflow, underflow, both zeros, infinities and NaN."""
    ends = [0, -0.0, np.inf, -np.inf, np.nan, 88.7, 88.8, -87.3, -104, 1e-42, 3e38, -1e-30, 1]
    x = d(Add(), d.x(13), d.full(0, 13))
    d.arrays[-1] = np.array(ends, np.float32)
    return [d(op, x) for op in (Exp(), Tanh(), Sigmoid(), Erf(), Relu())]


@example
def nan_wins(d: Drawing) -> list[Value]:
    x, y = d.x(8), d.x(8)
    d.arrays[-2:] = [np.array([np.nan, 1, -1, np.nan, 0, -np.inf, np.inf, 2], np.float32)] * 2
    d.arrays[-1] = d.arrays[-1][::-1].copy()
    return [d(Maximum(), x, y), d(Maximum(), x, d.full(0, 8))]


# --------------------------------------------------------------------------- other element types
@example
def double_precision(d: Drawing) -> list[Value]:
    y = d(MatMul(), d.x(13, 14, dtype=f64), d.w(14, 15, dtype=f64))
    return [d(Sqrt(), d(Mul(), y, y)), d(ReduceMean((1,)), y)]


@example
def half_precision(d: Drawing) -> list[Value]:
    outputs = []
    for dtype in (f16, bf16):
        y = d(MatMul(), d.x(9, 10, dtype=dtype), d.w(10, 11, dtype=dtype))
        outputs += [d(Tanh(), y), d(Cast(f32), y), d(Cast(dtype), d.x(23))]
    return outputs


@example
def quantized(d: Drawing) -> list[Value]:
    """Bytes multiplied and summed in 32 bits, between quantised borders."""
    scale, zero = d.full(0.02), d.full(3, dtype=i8)
    q = d(QuantizeLinear(), d.x(10, 24), scale, zero)
    w = d(Cast(i32), d.w(24, 18, dtype=i8))
    total = d(MatMul(), d(Sub(), d(Cast(i32), q), d.full(3, dtype=i32)), w)
    rounded = d(QuantizeLinear(), d(Cast(f32), total), d.full(70.0), d.full(128, dtype=u8))
    return [total, rounded, d(DequantizeLinear(f32), q, scale, zero)]


@example
def integer_arithmetic(d: Drawing) -> list[Value]:
    outputs = []
    for dtype in (i8, u8, i32, i64):
        x, y = d.x(37, dtype=dtype), d.x(37, dtype=dtype)
        d.arrays[-1][d.arrays[-1] == 0] = 5
        outputs += [d(op, x, y) for op in (Add(), Mul(), Div(), Mod(), Maximum())]
    places = d.full(3, dtype=i32)
    x = d.x(19, dtype=i32)
    return [*outputs, d(ShiftRight(), x, places), d(ShiftLeft(), x, places)]


# ------------------------------------------------------------------------------------ a network
@example
def network(d: Drawing) -> list[Value]:
    x = d(Relu(), d(_conv(stride=2), d.x(1, 3, 32, 32), d.w(16, 3, 3, 3)))
    y = d(Relu(), d(_conv(), x, d.w(16, 16, 3, 3)))
    x = d(Add(), x, d(_conv(), y, d.w(16, 16, 3, 3)))
    x = d(Tanh(), d(_conv(stride=2, groups=16), x, d.w(16, 1, 3, 3)))
    x = d(_conv(pad=0), x, d.w(24, 16, 1, 1))
    x = d.chain(x, Relu(), ReduceMean((2, 3)))
    return [d(Softmax(1), d(MatMul(), x, d.w(24, 10)))]
