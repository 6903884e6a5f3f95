"""What is left open about special values: signs of some zeros, sums and normalizations that
overflow on the way, infinite weights and parameters.  See docs/special-values.md.

Where a result is left open, every run of the interpreter has something else there, so that
anything is accepted, and so is all that depends on it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tools.graph_fuzz.rounding import Noise, largest
from whet.core.dtypes import f64
from whet.core.errors import WhetError
from whet.core.types import Array
from whet.graph.graph import Constant, Node
from whet.graph.interpret import run_node
from whet.ops.attention import Attention
from whet.ops.normalize import BatchNorm
from whet.ops.pool import AvgPool
from whet.ops.recurrent import Recurrence
from whet.ops.reduce import ReduceMean
from whet.ops.signal import DFT

SUMS = frozenset([
    "matmul", "conv", "conv_transpose", "einsum", "reduce_sum", "reduce_mean", "avg_pool", "cumsum",
    "col2im", "attention", "rnn", "lstm", "gru", "dft",
])  # fmt: skip
"""Sums of products, in any order: a partial sum may overflow where the whole does not."""
PRODUCTS = frozenset(["reduce_prod", "cumprod"])
"""Products in any order: a part may overflow or vanish where the whole does not."""
SIGNLESS = SUMS | frozenset([
    "maximum", "minimum", "relu", "leaky_relu", "prelu", "elu", "celu", "selu", "thresholded_relu",
    "hard_sigmoid", "hard_swish", "shrink", "softsign", "gelu", "swish", "mish", "max_pool",
    "lp_pool", "reduce_max", "reduce_min", "reduce_prod", "cumprod", "resize", "grid_sample",
    "roi_align", "max_roi_pool", "deform_conv", "batch_norm", "layer_norm",
    "instance_norm", "group_norm", "rms_norm", "lrn", "det",
])  # fmt: skip
"""Operators whose zeros have any sign."""
OPEN: Mapping[str, tuple[int, ...] | None] = {
    "batch_norm": (1, 2, 3, 4), "layer_norm": (1, 2), "instance_norm": (1, 2),
    "group_norm": (1, 2), "rms_norm": (1,), "det": None, "dft": None, "roi_align": (1,),
    "max_roi_pool": (1,), "grid_sample": (1,), "deform_conv": None,
}  # fmt: skip
"""Inputs that are no numbers leave the result open; None stands for all inputs."""
HUGE = 1e15
"""Products of two smaller numbers do not overflow."""
LIMITS = {"f64": 1.7e308}
"""Where a sum overflows: in f32 for all smaller types."""
EXAMPLES = (np.nan, 0.0, np.inf)


def opened(node: Node, args: tuple[Array, ...], results: tuple[Array, ...], noise: Noise,
           ) -> tuple[Array, ...]:  # fmt: skip
    """The results with something else in every run where nothing is promised."""
    name = node.op.name
    if name in SIGNLESS:
        results = tuple(_any_sign(r, noise) for r in results)
    if _is_open(node, args):
        return tuple(_other(r, np.ones(r.shape, np.bool_), noise) for r in results)
    if name == "batch_norm" or (name in SUMS and any(_has_huge(a) for a in args)):
        return _with_overflows(node, args, results, noise)
    if name in PRODUCTS:
        return _with_lost_parts(node, args, results, noise)
    return results


def _any_sign(array: Array, noise: Noise) -> Array:
    if array.dtype != np.float64 or array.all():
        return array
    sign = noise.rng.integers(0, 2, array.shape) * 2.0 - 1
    return np.where(array == 0, np.copysign(0.0, sign), array)


def _is_open(node: Node, args: tuple[Array, ...]) -> bool:
    name = node.op.name
    if name in ("conv", "conv_transpose") and not isinstance(node.inputs[1], Constant):
        return _is_special(args[1])  # times padding, it may be NaN or left out
    if name not in OPEN:
        return False
    places = OPEN[name]
    if name in ("deform_conv", "det") and any(_has_huge(a) for a in args):
        return True  # rounding decides whether a pixel has a part in a sum, or what a pivot is
    return any(_is_special(a) for n, a in enumerate(args) if places is None or n in places)


def _is_special(array: Array) -> bool:
    return array.dtype == np.float64 and not np.isfinite(array).all()


def _has_huge(array: Array) -> bool:
    return array.dtype == np.float64 and bool((np.abs(array) > HUGE).any())


def _other(array: Array, where: Array, noise: Noise) -> Array:
    if array.dtype != np.float64:
        return array
    return np.where(where, EXAMPLES[noise.number % len(EXAMPLES)], array)


def _with_overflows(node: Node, args: tuple[Array, ...], results: tuple[Array, ...], noise: Noise,
                    ) -> tuple[Array, ...]:  # fmt: skip
    """Open where what is computed on the way to finite results may overflow."""
    sizes = tuple(
        np.where(np.isfinite(a), np.abs(a), 0.0) if a.dtype == np.float64 else a for a in args
    )
    limit = LIMITS.get(node.results[0].type.dtype.name, 3.3e38)
    try:
        bounds = _bounds(node, sizes)
    except WhetError:
        return results
    return tuple(_other(r, ~(b <= limit), noise) for r, b in zip(results, bounds))


def _with_lost_parts(node: Node, args: tuple[Array, ...], results: tuple[Array, ...],
                     noise: Noise) -> tuple[Array, ...]:  # fmt: skip
    """Open where the large factors alone overflow, or the small ones alone vanish."""
    if args[0].dtype != np.float64:
        return results
    sizes = np.abs(np.where(np.isfinite(args[0]) & (args[0] != 0), args[0], 1.0))
    wide = node.results[0].type.dtype == f64
    large = run_node(node, (np.maximum(sizes, 1.0), *args[1:]), f64)
    small = run_node(node, (np.minimum(sizes, 1.0), *args[1:]), f64)
    least = 2.3e-308 if wide else 1.2e-38
    limit = LIMITS.get(node.results[0].type.dtype.name, 3.3e38)
    return tuple(_other(r, (b > limit) | (s < least), noise)
                 for r, b, s in zip(results, large, small))  # fmt: skip


def _bounds(node: Node, sizes: tuple[Array, ...]) -> tuple[Array, ...]:
    """How large numbers may become before the results are known, given the sizes of terms."""
    op = node.op
    if isinstance(op, BatchNorm):
        return (_bound_of_batch_norm(op.epsilon, *sizes),)
    bounds = run_node(node, sizes, f64)
    if isinstance(op, Attention):  # results are means of values, but scores are sums of products
        scores = largest(sizes[0]) * largest(sizes[1]) * sizes[0].shape[-1]
        return tuple(np.maximum(b, scores) for b in bounds)
    if isinstance(op, Recurrence):
        return _bounds_of_gates(sizes, bounds)
    if isinstance(op, DFT):  # terms have all signs, whatever those of the signal are
        return tuple(np.full(b.shape, sizes[0].sum()) for b in bounds)
    terms = 1.0  # of a mean, whose sum is formed before it is divided
    if isinstance(op, ReduceMean):
        terms = sizes[0].size / max(bounds[0].size, 1)
    elif isinstance(op, AvgPool):
        terms = float(np.prod(op.kernel))
    with np.errstate(all="ignore"):
        return tuple(b * terms for b in bounds)


def _bound_of_batch_norm(epsilon: float, x: Array, *parameters: Array) -> Array:
    """That of x * factor + (bias - mean * factor), with factor = scale / deviation."""
    scale, bias, mean, var = (p.reshape(-1, *(1,) * (x.ndim - 2)) for p in parameters)
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(var + epsilon)
        return np.asarray((x + mean) * factor + bias + factor)


def _bounds_of_gates(sizes: tuple[Array, ...], states: tuple[Array, ...]) -> tuple[Array, ...]:
    """Those of what goes into the gates at any time, for every sequence of the batch."""
    x, w, r, biases, *initial = sizes
    state = max(1.0, *(largest(a) for a in (*states, *initial) if a.dtype == np.float64))
    with np.errstate(all="ignore"):
        gates = x @ w.T + biases.reshape(2, -1).sum(0) + state * r.sum(1)
    each = gates.max((0, 2), initial=0.0)[:, None]
    return tuple(np.broadcast_to(each, s.shape) for s in states)
