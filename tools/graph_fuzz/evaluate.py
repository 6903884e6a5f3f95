"""What a model gives, by the interpreter: in double precision, as declared, and with noise.

The noise is that of computing in the declared types: every number that an operator computes,
and that its type cannot hold, is moved by a few units of rounding; where an operator sums up,
its inputs are moved too, which is how errors of sums come about.  Runs with different noise then
show how far results may be apart, for every element: next to nothing behind exact arithmetic,
much behind a cancellation, and everything behind a comparison that rounding decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from whet.core.dtypes import DType, f32, f64
from whet.core.types import Array
from whet.frontend.onnx.imported import ImportedModel
from whet.graph.graph import Constant, Graph, Node, Value
from whet.graph.interpret import interpret, run_node
from whet.ops.elementwise import Elementwise

ROUNDING = {"f64": 2.0**-53, "f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}
"""Half the distance of neighbours, relative to the number."""
TINY = {"f64": 2.0**-1074, "f32": 2.0**-149, "f16": 2.0**-24, "bf16": 2.0**-133}
"""The distance of the smallest numbers."""
SMALLEST = {"f64": 2.0**-1022, "f32": 2.0**-126, "f16": 2.0**-24, "bf16": 2.0**-126}
"""Below this a function's result may be zero; half precision is computed in f32."""
UNSTEADY = frozenset(["resize"])
"""Operators that compute integers by way of fractions, and cut those off: one more or less."""
SATURATING = dict.fromkeys(["rnn", "gru", "lstm"], dict.fromkeys(ROUNDING, 1e-15))
"""Operators whose gates end at a small number instead of zero, and whose states are differences
of numbers as large as the largest."""
PLAIN = frozenset(["add", "sub", "mul", "div", "neg", "abs", "sqrt", "cast", "matmul", "conv",
                   "reduce_sum", "reduce_mean"])  # fmt: skip
"""Arithmetic that is right to the last digit of the smallest numbers."""
FRACTION = {"f64": 2.0**40, "f32": 2.0**24, "f16": 2.0**11, "bf16": 2.0**8}
"""Numbers with no more digits than this count as exact: for f64 fewer than it has, because
there is no wider type to compare with."""
CANCELLING = {
    "elu": 2.0, "celu": 2.0, "selu": 4.0, "gelu": 4.0, "mish": 4.0, "softplus": 4.0, "swish": 2.0,
    "hard_swish": 4.0, "hard_sigmoid": 2.0, "shrink": 1.0,
}  # fmt: skip
"""Functions that are computed as a difference of numbers near one or near their argument: so
many units of rounding of that, and not of a small result, they are off."""
MIXING = {
    "conv": 32.0, "dft": 8.0, "grid_sample": 16.0, "roi_align": 16.0, "deform_conv": 16.0,
    "resize": 16.0,
}  # fmt: skip
"""Operators that may add and subtract neighbours which an element hardly depends on (tiles of a
convolution, factors that are zero but for rounding): so many units of rounding of the largest
number they are off."""

Run = tuple[Array, ...]
"""The outputs of a model: f64 for floating-point ones that are carried, else as declared."""


@dataclass(frozen=True)
class Noise:
    """How much rounding is exaggerated.  With `everywhere`, exact results are moved too."""

    rng: np.random.Generator
    amplitude: float = 4.0
    everywhere: bool = False
    alike: bool = False
    """Whether equal numbers are moved alike: those of one function are, in fact."""

    def draw(self, array: Array) -> Array:
        """A number between -1 and 1 for every element."""
        if not self.alike:
            return self.rng.uniform(-1, 1, array.shape)
        values, places = np.unique(array, return_inverse=True)
        return self.rng.uniform(-1, 1, values.shape)[places].reshape(array.shape)

    def moved(self, array: Array, dtype: DType, where: Any = True, least: float = 0.0) -> Array:
        """The numbers moved by up to `amplitude` units of rounding, and by `least`."""
        factor = 1 + self.draw(array) * (self.amplitude * ROUNDING[dtype.name])
        step = self.rng.uniform(-1, 1, array.shape) * max(TINY[dtype.name], least)
        with np.errstate(all="ignore"):
            return np.where(where & np.isfinite(array), array * factor + step, array)


def is_exact(array: Array, dtype: DType) -> Array:
    """Which numbers the type holds as they are."""
    with np.errstate(all="ignore"):
        fraction, _ = np.frexp(array)
        scaled = fraction * FRACTION[dtype.name]
        return (scaled == np.rint(scaled)) | ~np.isfinite(array)


def noisy(graph: Graph, arrays: Sequence[Array], noise: Noise) -> Run:
    """The graph's outputs in double precision, with noise."""
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
        env.update(zip(node.results, _noisy_results(node, args, noise)))
    return tuple(read(v) for v in graph.outputs)


def _wide(array: Array, dtype: DType) -> Array:
    return array.astype(np.float64) if dtype.name in ROUNDING else array


def _noisy_results(node: Node, args: tuple[Array, ...], noise: Noise) -> tuple[Array, ...]:
    if not node.op.deterministic:
        return run_node(node, args, f64)
    results = run_node(node, args, f64)
    computed = [_computed(r, v.type.dtype, args, noise) for r, v in zip(results, node.results)]
    inside = node.op.name in MIXING or node.op.name in UNSTEADY
    rounds = noise.everywhere or inside or any(np.any(c) for c in computed)
    if not rounds:
        return results
    if not isinstance(node.op, Elementwise):  # that rounds its result, and nothing before
        moved = tuple(_moved_operand(a, v, noise) for a, v in zip(args, node.inputs))
        results = run_node(node, moved, f64)
        computed = [_computed(r, v.type.dtype, moved, noise) for r, v in zip(results, node.results)]
    if node.op.name in MIXING and results[0].dtype == np.float64:
        results = (_mixed(node, results[0], args, noise),)
    if node.op.name in UNSTEADY and results[0].dtype.kind in "iu":
        return tuple(r + noise.rng.integers(-1, 2, r.shape).astype(r.dtype) for r in results)
    if node.op.name in SATURATING:
        results = tuple(_shifted(r, 8 * _largest(r), noise) if r.dtype == np.float64 else r
                        for r in results)  # fmt: skip
    if node.op.name in CANCELLING and results[0].dtype == np.float64:
        size = np.maximum(1.0, np.abs(args[0])) * CANCELLING[node.op.name]
        # Zero stays zero, unless it is what is left of a large argument.
        results = (_shifted(results[0], size, noise, zeros=np.abs(args[0]) > 4),)
    least = {} if node.op.name in PLAIN else SATURATING.get(node.op.name, SMALLEST)
    return tuple(
        noise.moved(r, v.type.dtype, c, least.get(v.type.dtype.name, 0.0))
        if v.type.dtype.name in ROUNDING else r
        for r, v, c in zip(results, node.results, computed)
    )  # fmt: skip


def _computed(result: Array, dtype: DType, args: Sequence[Array], noise: Noise) -> Array:
    """Which elements were rounded here: none that an input has as well, none that is exact."""
    if dtype.name not in ROUNDING:
        return np.zeros(result.shape, np.bool_)
    known = [np.ravel(a) for a in args if a.dtype == np.float64]
    fresh = ~np.isin(result, np.concatenate(known)) if known else np.ones(result.shape, np.bool_)
    if noise.everywhere:  # the tanh of a large number may be a number that was there before
        return fresh | (np.isin(result, (1.0, -1.0)))
    return fresh & ~is_exact(result, dtype)


def _moved_operand(array: Array, value: Value, noise: Noise) -> Array:
    """An input as sums see it: they are formed in f32 at least."""
    if array.dtype != np.float64 or value.type.dtype.name not in ROUNDING:
        return array
    inner = value.type.dtype if value.type.dtype.bits >= 32 else f32
    return noise.moved(array, inner)


def _largest(array: Array) -> float:
    return float(np.abs(array[np.isfinite(array)]).max(initial=0))


def _mixed(node: Node, result: Array, args: Sequence[Array], noise: Noise) -> Array:
    largest = _largest(args[0])
    if node.op.name == "conv":
        finite = np.abs(np.where(np.isfinite(args[1]), args[1], 0.0))
        largest *= float(finite.mean()) * finite[:1].size if finite.size else 0.0
    inner = "f64" if node.results[0].type.dtype == f64 else "f32"
    return _shifted(result, MIXING[node.op.name] * largest, noise, inner, zeros=True)


def _shifted(
    result: Array, size: Any, noise: Noise, inner: str = "f32", *, zeros: Any = False
) -> Array:
    """The numbers, with or without zeros, moved by up to a unit of rounding of that size."""
    with np.errstate(all="ignore"):
        moved = result + noise.draw(result) * (size * ROUNDING[inner])
    return np.where(np.isfinite(result) & (zeros | (result != 0)), moved, result)


# ------------------------------------------------------------------------------------- models
def run_model(
    imported: ImportedModel, flat: Sequence[Array], execute: Callable[[Graph, Sequence[Array]], Run]
) -> Run:
    """The model's outputs, stage by stage where shapes depend on data."""
    arrays = tuple(flat)
    while True:
        outputs = execute(imported.graph, imported.graph_inputs(arrays))
        if imported.tail is None:
            return outputs
        arrays = _declared(imported.graph, outputs)
        imported = imported.tail.stage(arrays)


def _declared(graph: Graph, outputs: Run) -> Run:
    with np.errstate(all="ignore"):
        return tuple(
            a.astype(v.type.dtype.numpy, copy=False) for a, v in zip(outputs, graph.outputs)
        )


def reference_runs(imported: ImportedModel, flat: Sequence[Array]) -> list[Run]:
    """The outputs in double precision first, then as declared, then with halves carried on."""
    runs = [
        run_model(imported, flat, lambda g, a: interpret(g, a, precise=True)),
        run_model(imported, flat, lambda g, a: interpret(g, a)),
    ]
    if any(v.type.dtype.name in ("f16", "bf16") for n in imported.graph.nodes for v in n.results):
        runs.append(run_model(imported, flat, lambda g, a: interpret(g, a, round_halves=False)))
    return runs


def noisy_runs(
    imported: ImportedModel, flat: Sequence[Array], count: int, seed: int, **settings: Any
) -> list[Run]:
    """The outputs with noise, `count` times; in every other run equal numbers move alike."""
    rng = np.random.default_rng([seed, count])
    found = []
    for n in range(count):
        noise = Noise(rng, alike=n % 2 == 1, **settings)
        found.append(run_model(imported, flat, lambda g, a, noise=noise: noisy(g, a, noise)))
    return found
