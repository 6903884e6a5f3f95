"""Every element-wise operator on special values: both engines give the same.

Rows of 119 elements are several vectors and a tail on every target.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.special.engines import (
    RELATIVE,
    assert_agree,
    both,
    draw,
    graph_of,
    on_every_target,
    special,
)
from tests.targets import HOST
from whet.core.cpu import CpuTarget
from whet.core.dtypes import DType, bf16, bool_, dtype_of, f16, f32, f64, i8, i32, i64, u8, u64
from whet.core.types import Array, TensorType, type_of
from whet.graph.build import GraphBuilder
from whet.graph.graph import Graph, Value
from whet.ops.base import REGISTRY
from whet.ops.shared.elementwise import Elementwise

DTYPES = (f32, f64, f16, bf16, i8, u8, i32, i64, u64, bool_)
FEW = (f32, f64, f16, i8, u64)
"""Types of all kinds and of the least and most bits, for targets that are not this machine."""
SHAPE = (9, 119)
OPERATORS = sorted(
    name
    for name, cls in REGISTRY.items()
    if issubclass(cls, Elementwise) and name not in ("cast", "bitcast")
)
SHARED = frozenset({"celu", "elu", "selu", "gelu", "hard_sigmoid", "hard_swish", "mish", "swish"})
"""Functions that subtract or add one: near zero they are right to a unit of one."""
ANY_ZERO = frozenset({
    "minimum", "maximum", "relu", "leaky_relu", "elu", "selu", "celu", "gelu",
})  # fmt: skip
"""Those for which -0.0 and 0.0 are the same."""


def operands(dtypes: tuple[DType, ...]) -> list[Array]:
    """One operand is every special value, and of several all pairs are likely to meet."""
    rng = np.random.default_rng(0)
    if len(dtypes) == 1:
        return [np.resize(special(dtypes[0]), SHAPE)]
    return [draw(d, SHAPE, rng) for d in dtypes]


@on_every_target
@pytest.mark.parametrize("name", OPERATORS)
def test_engines_agree(name: str, target: CpuTarget) -> None:
    cls = REGISTRY[name]
    assert issubclass(cls, Elementwise)
    for dtype in DTYPES if target is HOST else FEW:
        if dtype not in cls.accepts:
            continue
        dtypes = cls.operand_dtypes(dtype)
        arrays = operands(dtypes)
        for op in cls.instances():
            graph = graph_of(op, *(TensorType(SHAPE, d) for d in dtypes))
            ((got, want),) = both(graph, arrays, target)
            step = RELATIVE.get(dtype, 0.0)
            what = f"{op} of {dtype}"
            absolute = step * 4 if name in SHARED else 0.0
            assert_agree(got, want, what, relative=step, absolute=absolute)
            if dtype_of(want).is_float and name not in ANY_ZERO:
                zeros = (got == 0) & (want == 0)
                np.testing.assert_array_equal(np.signbit(got[zeros]), np.signbit(want[zeros]), what)


CONSTANTS = [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 3.0, np.nan, np.inf, -np.inf, 1e-45, 3.4e38]


@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
@pytest.mark.parametrize("name", OPERATORS)
def test_engines_agree_about_constants(name: str, dtype: DType) -> None:
    """What is known of an operand when code is made leads to the same results."""
    cls = REGISTRY[name]
    assert issubclass(cls, Elementwise)
    if dtype not in cls.accepts or cls.operand_dtypes(dtype) != (dtype, dtype):
        return
    x = np.resize(special(dtype), 117)
    b = GraphBuilder()
    v = b.input("x", type_of(x))
    outputs: list[Value] = []
    for number in CONSTANTS:
        c = b.constant(np.array(number, dtype.numpy))
        outputs += [b.one(op, *pair) for op in cls.instances() for pair in ((v, c), (c, v))]
    graph = Graph((v,), tuple(outputs), tuple(f"y{n}" for n in range(len(outputs))))
    for n, (got, want) in enumerate(both(graph, [x], HOST)):
        what = f"{name} of {dtype} and {CONSTANTS[n * len(CONSTANTS) // len(outputs)]}"
        assert_agree(got, want, what, relative=RELATIVE[dtype])


# -------------------------------------------------------------------------- what the page says
def values(name: str, *columns: list[float], target: CpuTarget, dtype: DType = f32) -> Array:
    """The operator on columns of numbers as native code, in the middle of vectors and in tails."""
    arrays = [np.resize(np.array(c).astype(dtype.numpy), 37 * len(c)) for c in columns]
    types = (TensorType(arrays[0].shape, dtype),) * len(arrays)
    ((got, _),) = both(graph_of(REGISTRY[name](), *types), arrays, target)
    rows = got.reshape(37, -1)
    np.testing.assert_array_equal(rows, np.broadcast_to(rows[0], rows.shape))
    return rows[0]


NAN, INF = np.nan, np.inf


@on_every_target
@pytest.mark.parametrize(
    ("name", "columns", "expected"),
    [
        ("maximum", ([NAN, 1, NAN, INF], [1, NAN, NAN, NAN]), [NAN] * 4),
        ("minimum", ([NAN, 1, NAN, -INF], [1, NAN, NAN, NAN]), [NAN] * 4),
        ("relu", ([NAN, -INF, INF],), [NAN, 0, INF]),
        ("sign", ([NAN, -INF, -1e-45, -0.0],), [NAN, -1, -1, 0]),
        ("round", ([0.5, 1.5, 2.5, -0.3, NAN, INF],), [0, 2, 2, -0.0, NAN, INF]),
        ("sqrt", ([-0.0, -1, INF, NAN],), [-0.0, NAN, INF, NAN]),
        ("exp", ([NAN, INF, -INF, 89, -104],), [NAN, INF, 0, INF, 0]),
        ("log", ([0, -0.0, -1, INF, NAN],), [-INF, -INF, NAN, INF, NAN]),
        ("sigmoid", ([NAN, INF, -INF, -1e30],), [NAN, 1, 0, 0]),
        ("tanh", ([NAN, INF, -INF, 9.5, 1e-45],), [NAN, 1, -1, 1, 1e-45]),
        ("erf", ([NAN, INF, -INF, 4, 1e-45],), [NAN, 1, -1, 1, 1e-45]),
        ("gelu", ([NAN, INF, -INF, -1e30, -100],), [NAN, INF, NAN, 0, 0]),
        ("softplus", ([NAN, INF, -INF, -200],), [NAN, INF, 0, 0]),
        ("pow", ([NAN, 1, -INF, -8, 0], [0, NAN, 0.5, 1 / 3, -1]), [1, 1, INF, NAN, INF]),
        ("mod", ([5, -5, 1, -1, 1, NAN], [-3, 3, INF, INF, 0, 2]), [-1, 1, 1, INF, NAN, NAN]),
        ("thresholded_relu", ([NAN, INF, -INF],), [0, INF, 0]),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_values(
    name: str, columns: tuple[list[float], ...], expected: list[float], target: CpuTarget
) -> None:
    np.testing.assert_array_equal(
        values(name, *columns, target=target), np.array(expected, np.float32)
    )


@on_every_target
def test_subnormals_are_kept(target: CpuTarget) -> None:
    tiny = np.float32(1e-40)
    got = values("add", [1e-40, 1e-45], [1e-40, 0], target=target)
    np.testing.assert_array_equal(got, np.array([tiny + tiny, 1e-45], np.float32))
    np.testing.assert_array_equal(
        values("mul", [1e-30, 1e-40], [1e-10, 2.0], target=target),
        np.array([np.float32(1e-30) * np.float32(1e-10), tiny * 2], np.float32),
    )
    exact = np.exp(np.array([-88.0, -95.0, -100.0])).astype(np.float32)
    got = values("exp", [-88.0, -95.0, -100.0], target=target)
    np.testing.assert_allclose(got, exact, rtol=0, atol=2e-45)
    got = values("log", [1e-45, 1e-40], target=target)
    np.testing.assert_allclose(got, np.log(np.float32([1e-45, 1e-40])), rtol=2e-7)


@on_every_target
@pytest.mark.parametrize("dtype", [i8, i32, i64], ids=str)
def test_integers_wrap_around_and_never_trap(dtype: DType, target: CpuTarget) -> None:
    info = np.iinfo(dtype.numpy)
    low, high = info.min, info.max

    def of(name: str, *columns: list[int]) -> list[int]:
        return [int(v) for v in values(name, *columns, target=target, dtype=dtype)]

    assert of("add", [high, low], [1, -1]) == [low, high]
    assert of("mul", [high, low], [2, -1]) == [-2, low]
    assert of("neg", [low]) == of("abs", [low]) == [low]
    assert of("div", [low, 7, -7, 7], [-1, 0, 2, -2]) == [low, 0, -3, -3]
    assert of("mod", [low, 7, -7, 7], [-1, 0, 2, -2]) == [0, 0, 1, -1]
    assert of("pow", [2, -1, 0, 3], [-1, -3, -1, 0]) == [0, -1, 0, 1]
    assert of("shift_left", [1, 1, 3], [dtype.bits, -1, dtype.bits - 1]) == [0, 0, low]
    assert of("shift_right", [low, high, -8], [dtype.bits, dtype.bits, 1]) == [-1, 0, -4]
