"""Conversions of values that the other type cannot hold."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.running import run_native
from tests.special.engines import assert_agree, both, graph_of, on_every_target, special
from whet.core.conversion import convert_array
from whet.core.cpu import CpuTarget
from whet.core.dtypes import (
    INTEGERS,
    DType,
    bf16,
    bool_,
    f16,
    f32,
    f64,
    i4,
    i8,
    i16,
    i32,
    i64,
    integer_range,
    u8,
    u16,
    u32,
    u64,
)
from whet.core.types import TensorType
from whet.ir.expr import Var, as_expr, call, cast
from whet.ir.program import Buffer, Loop, Program, Store
from whet.ops.casting import Cast
from whet.ops.quantize import QuantizeLinear

SHAPE = (3, 79)


@on_every_target
@pytest.mark.parametrize("source", [f32, f64, f16, bf16, i64, u64, i8], ids=str)
def test_engines_agree(source: DType, target: CpuTarget) -> None:
    x = np.resize(special(source), SHAPE)
    for to in (*INTEGERS, bool_, f32, f64, f16, bf16):
        if to == source:
            continue
        ((got, want),) = both(graph_of(Cast(to), TensorType(SHAPE, source)), [x], target)
        assert_agree(got, want, f"{source} as {to}")


NAN, INF = np.nan, np.inf
LOWEST32, LOWEST64 = -(2**31), -(2**63)


@pytest.mark.parametrize(
    ("dtype", "values", "expected"),
    [
        (i32, [2.9, -2.9, 2.0**31, -1e20, NAN, INF], [2, -2, *[LOWEST32] * 4]),
        (i64, [2.0**62, 2.0**63, -INF, NAN], [2**62, *[LOWEST64] * 3]),
        (i8, [127.9, 128, 300, -300, 1e10, NAN, INF], [127, -128, 44, -44, 0, 0, 0]),
        (u8, [-1.5, 255.9, 256, 300, NAN, -INF], [255, 255, 0, 44, 0, 0]),
        (i16, [40000.0, NAN], [40000 - 65536, 0]),
        (u16, [-1.0, 70000.0], [65535, 70000 - 65536]),
        (u32, [-1.0, 3e9, 2.0**32, 1e20, NAN], [2**32 - 1, 3000000000, 0, 0, 0]),
        (u64, [-1.0, 1.5 * 2.0**63, 2.0**64, NAN], [2**64 - 1, 3 * 2**62, 2**63, 2**63]),
        (i4, [9.0, -9.0, NAN], [-7, 7, 0]),
    ],
    ids=str,
)
def test_floats_as_integers(dtype: DType, values: list[float], expected: list[int]) -> None:
    for source in (np.float64, np.float32):
        got = convert_array(np.array(values, source), dtype)
        assert got.dtype == dtype.numpy
        assert [int(v) for v in got] == expected


@pytest.mark.parametrize("source", [f32, f64], ids=str)
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_code_for_other_processors(dtype: DType, source: DType) -> None:
    """What x86 makes of values that do not fit is asked for step by step elsewhere."""
    x = np.resize(special(source), 80)
    low, high = (float(v) for v in integer_range(dtype))
    i = Var("i")
    a, b, c = (Buffer(n, (80,), d) for n, d in (("a", source), ("b", dtype), ("c", dtype)))
    kept = call("min", call("max", a[i], low), high)
    body = (Store(b, (i,), cast(a[i], dtype)), Store(c, (i,), cast(kept, dtype)))
    program = Program("kernel", (a,), (b, c), (Loop(i, as_expr(80), body, "vector"),))
    plain, limited = run_native(program, [x], portable=True)
    np.testing.assert_array_equal(plain, convert_array(x, dtype))
    clipped = np.clip(x, x.dtype.type(low), x.dtype.type(high))
    np.testing.assert_array_equal(limited, convert_array(clipped, dtype))


@on_every_target
def test_quantization_limits_its_results(target: CpuTarget) -> None:
    x = np.resize(np.array([NAN, INF, -INF, 1e30, -1e30, 200.4, 0.5, 1.5], np.float32), SHAPE)
    one = np.array(1, np.float32)
    for dtype, expected in ((u8, [0, 255, 0, 255, 0, 203, 3, 5]),
                            (i8, [0, 127, -128, 127, -128, 127, 3, 5])):  # fmt: skip
        zero = np.array(3, dtype.numpy)
        types = TensorType(SHAPE, f32), TensorType((), f32), TensorType((), dtype)
        ((got, want),) = both(graph_of(QuantizeLinear(), *types), [x, one, zero], target)
        np.testing.assert_array_equal(got, np.resize(np.array(expected, dtype.numpy), SHAPE))
        np.testing.assert_array_equal(want, got)
