"""Special values through both engines, on every level of x86-64 that this machine runs."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.targets import HOST, LEVELS
from whet.build.native import NO_CACHE, build
from whet.core.cpu import PRESETS, CpuTarget
from whet.core.dtypes import DType, bf16, bool_, dtype_of, f16, f32, f64
from whet.core.types import Array, TensorType
from whet.graph.graph import Graph, apply, make_input
from whet.graph.interpret import interpret
from whet.ops.base import Numeric, Op

OTHERS = [PRESETS[n] for n in ("x86-64-v3", "x86-64-v2") if n in LEVELS and n != HOST.name]
on_every_target = pytest.mark.parametrize("target", [HOST, *OTHERS], ids=lambda t: t.cpu)

SUBNORMAL = [1e-45, -1e-45, 1e-40, -1e-40, 1.1754942e-38]
FLOATS = [
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, -3.0, 7.9, 8.0, 9.0, -9.0, 16.5, -16.5,
    np.nan, np.inf, -np.inf, *SUBNORMAL, 1.1754944e-38, -1.2e-38, 3.4e38, -3.4e38, 1e30, -1e30,
    1e-7, -1e-7, 1e-20, 87.0, 88.0, 88.7, 89.0, -87.0, -88.0, -100.0, -103.0, -104.0, -110.0,
    127.5, -128.5, 128.0, 255.5, 256.0, -1.5, 300.0, -300.0, 32768.0, 65504.0, 70000.0, 2.0**31,
    -(2.0**31), 2147483520.0, 2.0**32, 4294967040.0, 1e10, -1e10, 2.0**63, -(2.0**63), 1.2e19,
    2.0**64, 1e20, -1e20,
]  # fmt: skip
"""Where functions and conversions begin, end, and leave what is usual."""


def integers(dtype: DType) -> list[int]:
    """Both ends of a type, small numbers, and shifts near the widths of types."""
    info = np.iinfo(dtype.numpy)
    near = [-7, -3, -2, -1, 0, 1, 2, 3, 7, 8, 9, 15, 16, 31, 32, 33, 63, 64, 65]
    ends = [info.min, info.min + 1, info.max - 1, info.max]
    return [n for n in (*ends, *near) if info.min <= n <= info.max]


def special(dtype: DType) -> Array:
    """All special values of a type."""
    if dtype is bool_:
        return np.array([False, True])
    values = FLOATS if dtype.is_float else integers(dtype)
    with np.errstate(all="ignore"):
        return np.array(values).astype(dtype.numpy)


def draw(dtype: DType, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Random special values."""
    values = special(dtype)
    return values[rng.integers(0, len(values), shape)]


def planted(
    shape: tuple[int, ...], values: list[float], rng: np.random.Generator, share: float = 0.03
) -> Array:
    """Ordinary numbers of f32 with a few others among them."""
    array = rng.standard_normal(shape).astype(np.float32)
    count = max(1, round(array.size * share))
    places = rng.choice(array.size, count, replace=False)
    array.reshape(-1)[places] = np.array(values, np.float32)[rng.integers(0, len(values), count)]
    return array


def graph_of(op: Op, *types: TensorType) -> Graph:
    inputs = tuple(make_input(f"x{n}", t) for n, t in enumerate(types))
    outputs = apply(op, *inputs)
    return Graph(inputs, outputs, tuple(f"y{n}" for n in range(len(outputs))))


class Both:
    """A graph in both engines."""

    def __init__(self, graph: Graph, target: CpuTarget, numerics: Numeric = "exact") -> None:
        self.graph = graph
        self.native = build(graph, target, 1, NO_CACHE, numerics=numerics)

    def __call__(self, *arrays: Array) -> list[tuple[Array, Array]]:
        """Each output as native code and as the interpreter gives it."""
        got = self.native(arrays)
        with np.errstate(all="ignore"):
            want = interpret(self.graph, arrays)
        return [(a, np.asarray(b)) for a, b in zip(got, want, strict=True)]


def both(graph: Graph, arrays: list[Array], target: CpuTarget) -> list[tuple[Array, Array]]:
    """Each output as native code and as the interpreter gives it."""
    return Both(graph, target)(*arrays)


def assert_agree(
    got: Array, want: Array, what: str, *, relative: float = 0.0, absolute: float = 0.0
) -> None:
    """The same NaNs and infinities, and numbers that are near; all else is equal."""
    assert (got.dtype, got.shape) == (want.dtype, want.shape), what
    if not dtype_of(got).is_float:
        np.testing.assert_array_equal(got, want, what)
        return
    unit = float(ml_dtypes.finfo(got.dtype).smallest_subnormal)
    np.testing.assert_allclose(
        got.astype(np.float64), want.astype(np.float64), rtol=relative,
        atol=max(absolute, unit), err_msg=what,
    )  # fmt: skip


RELATIVE = {f64: 1e-13, f32: 2e-6, f16: 2e-3, bf16: 1e-2}
"""What functions may differ by between engines."""
