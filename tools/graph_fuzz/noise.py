"""A graph in double precision, with the noise of computing in the declared types.

Every number that an operator computes, and that its type cannot hold, is moved by a few units of
rounding; where an operator sums up, its inputs are moved too, which is how errors of sums come
about.  Runs with different noise then show how far results may be apart, for every element: next
to nothing behind exact arithmetic, much behind a cancellation, and everything behind a comparison
that rounding decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tools.graph_fuzz.centring import CENTRED, off_centre
from tools.graph_fuzz.rounding import ROUNDING, SMALLEST, Noise, is_exact, largest
from tools.graph_fuzz.unpromised import opened
from whet.core.dtypes import DType, f32, f64
from whet.core.types import Array
from whet.graph.graph import Constant, Graph, Node, Value
from whet.graph.interpret import run_node
from whet.ops.shared.elementwise import Elementwise

UNSTEADY = frozenset(["resize"])
"""Operators that compute integers by way of fractions, and cut those off: one more or less."""
RECURRENT = frozenset(["rnn", "gru", "lstm"])
"""Operators whose states are differences of numbers as large as the largest."""
SATURATED = 1e-15
"""What gates end at, instead of zero."""
ADDING = frozenset([
    "add", "sub", "matmul", "conv", "conv_transpose", "einsum", "reduce_sum", "reduce_mean",
    "avg_pool", "cumsum",
])  # fmt: skip
"""Sums whose terms may cancel each other."""
LONG = frozenset(["reduce_sum", "reduce_mean"])
"""Sums that go on, in each lane, over all of their terms."""
STEADY = frozenset(["add", "sub", "mul", "div", "neg", "abs", "sqrt", "cast", "matmul", "conv",
                    "reduce_sum", "reduce_mean", "exp", "log", "tanh", "erf", "pow"])  # fmt: skip
"""Operators that are right to the last digit of the smallest numbers; others may give zero."""
CANCELLING = {
    "elu": 2.0, "celu": 2.0, "selu": 4.0, "gelu": 4.0, "mish": 4.0, "softplus": 4.0, "swish": 2.0,
    "hard_swish": 4.0, "hard_sigmoid": 2.0, "shrink": 1.0, "log_softmax": 2.0,
}  # fmt: skip
"""Functions that are computed as a difference of numbers near one or near their argument: so
many units of rounding of that, and not of a small result, they are off."""
BENT = frozenset(["hard_swish", "hard_sigmoid"])
"""Those that are zero where a line ends, which need not be where rounding lets it end."""
MIXING = {
    "conv": 32.0, "dft": 8.0, "grid_sample": 16.0, "roi_align": 16.0, "deform_conv": 16.0,
    "resize": 16.0,
}  # fmt: skip
"""Operators that may add and subtract neighbours which an element hardly depends on (tiles of a
convolution, factors that are zero but for rounding): so many units of rounding of the largest
number they are off."""


Change = Callable[[Node, tuple[Array, ...], tuple[Array, ...]], tuple[Array, ...]]
"""What becomes of a node's results, given its inputs."""


def noisy(graph: Graph, arrays: Sequence[Array], noise: Noise) -> tuple[Array, ...]:
    """The graph's outputs in double precision, with noise."""

    def moved(node: Node, args: tuple[Array, ...], results: tuple[Array, ...]) -> tuple[Array, ...]:
        if not node.op.deterministic:
            return results
        results = opened(node, args, _rounded(node, args, results, noise), noise)
        if not noise.everywhere or noise.number % 2 == 0:
            return results
        results = _representable(node, results)
        return _at_limits(node, results) if noise.number % 4 == 1 else results

    return _carried(graph, arrays, moved)


def rightly_rounded(graph: Graph, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """The graph's outputs when every operator is right to the last digit of its type: then a
    function of a number may be that number, which noise never makes it."""

    return _carried(graph, arrays, lambda node, _, results: _representable(node, results))


def _at_limits(node: Node, results: tuple[Array, ...]) -> tuple[Array, ...]:
    """The results, with 1, -1 or 0 where they are next to it: functions that end there may give
    it somewhat early, and then an arc cosine is 0."""
    made = []
    for array, value in zip(results, node.results):
        name = value.type.dtype.name
        if name in ROUNDING:
            one = np.abs(np.abs(array) - 1) <= 16 * ROUNDING[name]
            zero = np.abs(array) <= SMALLEST.get(name, 0.0)
            array = np.where(one, np.sign(array), np.where(zero, 0.0, array))
        made.append(array)
    return tuple(made)


def _representable(node: Node, results: tuple[Array, ...]) -> tuple[Array, ...]:
    """The results as their types hold them."""
    with np.errstate(all="ignore"):
        return tuple(
            _wide(r.astype(v.type.dtype.numpy), v.type.dtype) for r, v in zip(results, node.results)
        )


def _carried(graph: Graph, arrays: Sequence[Array], change: Change) -> tuple[Array, ...]:
    env: dict[Value, Array] = {}

    def read(v: Value) -> Array:
        if v not in env:
            assert isinstance(v, Constant)
            env[v] = _wide(v.array, v.type.dtype)
        return env[v]

    for value, array in zip(graph.inputs, arrays, strict=True):
        env[value] = _wide(np.asarray(array), value.type.dtype)
    for node in graph.nodes:
        args = tuple(read(v) for v in node.inputs)
        env.update(zip(node.results, change(node, args, run_node(node, args, f64))))
    return tuple(read(v) for v in graph.outputs)


def _wide(array: Array, dtype: DType) -> Array:
    return array.astype(np.float64) if dtype.name in ROUNDING else array


def _rounded(node: Node, args: tuple[Array, ...], results: tuple[Array, ...], noise: Noise,
             ) -> tuple[Array, ...]:  # fmt: skip
    name = node.op.name
    computed = [_computed(r, v.type.dtype, args, noise) for r, v in zip(results, node.results)]
    inside = name in MIXING or name in UNSTEADY or name in BENT
    decides = noise.everywhere and any(v.type.dtype.name not in ROUNDING for v in node.results)
    if not (decides or inside or any(np.any(c) for c in computed)):
        return results  # what moves numbers does not round them
    if not isinstance(node.op, Elementwise):  # that rounds its result, and nothing before
        moved = tuple(_moved_operand(a, v, noise) for a, v in zip(args, node.inputs))
        results = run_node(node, moved, f64)
        computed = [_computed(r, v.type.dtype, moved, noise) for r, v in zip(results, node.results)]
    if name == "equal" and noise.everywhere and args[0].dtype == np.float64:
        return (_nearly_equal(args[0], args[1], results[0], node.inputs[0].type.dtype, noise),)
    if name in UNSTEADY and results[0].dtype.kind in "iu":
        return tuple(r + noise.rng.integers(-1, 2, r.shape).astype(r.dtype) for r in results)
    shifted = tuple(_shifted(node, _cancelled(node, r, args, noise), args, noise) for r in results)
    computed = [c & ~((s == 0) & (r != 0)) for c, s, r in zip(computed, shifted, results)]
    least = {} if name in STEADY else SMALLEST
    if name in RECURRENT:
        least = dict.fromkeys(ROUNDING, SATURATED)
    return tuple(
        noise.moved(r, v.type.dtype, c, least.get(v.type.dtype.name, 0.0))
        if v.type.dtype.name in ROUNDING else r
        for r, v, c in zip(shifted, node.results, computed)
    )  # fmt: skip


def _nearly_equal(a: Array, b: Array, equal: Array, dtype: DType, noise: Noise) -> Array:
    """Whether numbers are equal; anything where they differ by a few units of rounding."""
    with np.errstate(all="ignore"):
        near = np.abs(a - b) <= 8 * ROUNDING[dtype.name] * np.maximum(np.abs(a), np.abs(b))
    drawn = noise.rng.integers(0, 2, equal.shape).astype(np.bool_)
    return np.where(near & ~equal, drawn, equal)


def _cancelled(node: Node, result: Array, args: Sequence[Array], noise: Noise) -> Array:
    """In every other run, zeros where sums are nothing but what rounding has left of their terms:
    in another order nothing may be left, and a truth value says no."""
    if result.dtype != np.float64 or node.op.name not in ADDING or not noise.everywhere:
        return result
    sizes = [np.abs(a) if a.dtype == np.float64 else a for a in args]
    with np.errstate(all="ignore"):
        if node.op.name == "sub":
            bound = sizes[0] + sizes[1]
        else:
            (bound, *_) = run_node(node, tuple(sizes), f64)
        unit = ROUNDING[node.results[0].type.dtype.name]
        lost = (np.abs(result) <= 16 * unit * bound) & (noise.number % 2 == 0)
    return np.where(lost, 0.0, result)


def _computed(result: Array, dtype: DType, args: Sequence[Array], noise: Noise) -> Array:
    """Which elements were rounded here: none that an input has as well, none that is exact."""
    if dtype.name not in ROUNDING:
        return np.zeros(result.shape, np.bool_)
    known = [np.ravel(a) for a in args if a.dtype == np.float64]
    fresh = ~np.isin(result, np.concatenate(known)) if known else np.ones(result.shape, np.bool_)
    return fresh if noise.everywhere else fresh & ~is_exact(result, dtype)


def _moved_operand(array: Array, value: Value, noise: Noise) -> Array:
    """An input as sums see it: they are formed in f32 at least."""
    if array.dtype != np.float64 or value.type.dtype.name not in ROUNDING:
        return array
    inner = value.type.dtype if value.type.dtype.bits >= 32 else f32
    return noise.moved(array, inner)


def _shifted(node: Node, result: Array, args: Sequence[Array], noise: Noise) -> Array:
    """The result with an error that is relative to something larger than itself."""
    name = node.op.name
    if result.dtype != np.float64:
        return result
    inner = "f64" if node.results[0].type.dtype == f64 else "f32"
    if name in MIXING:
        size = largest(args[0])
        if name == "conv":
            finite = np.abs(np.where(np.isfinite(args[1]), args[1], 0.0))
            size *= float(finite.mean()) * finite[:1].size if finite.size else 0.0
        return noise.shifted(result, MIXING[name] * size, inner, zeros=True)
    if name in CENTRED:
        return result + off_centre(node, args[0], args[1], inner, noise)
    if name in LONG and noise.everywhere and result.size:
        # Equal terms are all rounded the same way.
        size = args[0].size / result.size / 8 * np.abs(result)
        return noise.shifted(result, size, inner)
    if name in RECURRENT:  # 1 - gate is as exact as 1 is
        return noise.shifted(result, 8 * max(1.0, largest(result)), inner)
    if name in CANCELLING:
        sizes = np.maximum(1.0, np.abs(args[0])) * CANCELLING[name]
        # Zero stays zero, unless it is what is left of a large argument, or lies at the bend of a
        # straight line.
        zeros = np.abs(args[0]) > (0 if name in BENT else 4)
        return noise.shifted(result, sizes, inner, zeros=zeros)
    return result
