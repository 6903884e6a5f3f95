"""Every element type on every processor: no function that is missing, and the right numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from tests.codegen.running import run_native
from tests.targets import HOST
from whet.build.native import NO_CACHE
from whet.codegen.llvm.compile import Library
from whet.codegen.llvm.emit import emit_program
from whet.codegen.llvm.generator import LlvmGenerator
from whet.codegen.llvm.linking import unknown_symbols
from whet.codegen.llvm.module import Module
from whet.codegen.llvm.support import DTYPES
from whet.core.cpu import PRESETS, CpuTarget
from whet.core.dtypes import DType, bf16, f16, f32, parse_dtype
from whet.core.errors import NoCodeError, WhetError
from whet.core.foreign import missing_here
from whet.core.types import Array
from whet.ir.expr import Expr, Var, as_expr, binary, call, cast, select
from whet.ir.functions import FUNCTIONS, INFIX
from whet.ir.program import Allocate, Buffer, If, Loop, Program, Stmt, Store, Transpose

i, j = Var("i"), Var("j")
SIZE = 16
BASELINE = replace(PRESETS["x86-64-v2"], name="x86-64", cpu="x86-64", features=())
TARGETS = (BASELINE, *PRESETS.values())
PAIRS = ("pow", "min", "max", "truncdiv", "truncmod", "bitand", "bitor", "bitxor", "shiftleft",
         "shiftright")  # fmt: skip
"""Functions of two arguments, beside those that are written as signs."""
TARGET_NAMES = [t.name for t in TARGETS]


here = pytest.mark.parametrize(
    "target", [t for t in TARGETS if not missing_here(t)], ids=lambda t: t.name
)


# ------------------------------------------------------------------------------------- symbols
def programs(dtype: DType) -> Iterator[Program]:
    """All that can be done with elements of a type, in vectors of several lengths and alone."""
    a, b = Buffer("a", (SIZE,), dtype), Buffer("b", (SIZE,), dtype)
    others = [parse_dtype(name) for name in sorted(DTYPES)]
    values: list[Expr] = [cast(a[i], other) for other in others]
    values += [call(name, a[i]) for name in FUNCTIONS if name not in PAIRS]
    values += [call(name, a[i], b[i]) for name in PAIRS]
    values += [binary(op, a[i], b[i]) for op in INFIX if op not in ("and", "or")]
    backwards, scattered = a[as_expr(SIZE - 1) - i], a[i * 5 % SIZE]
    moved = [a[i], select(i < 5, a[i], b[i]), select(a[i] < b[i], a[i], backwards)]
    values += [scattered, a[i * 2 % SIZE], *moved]
    for number, value in enumerate(values):
        c = Buffer("c", (SIZE,), value.dtype)
        store = Store(c, (i,), value)
        whole = Loop(i, as_expr(SIZE), (store,), "vector")
        bodies: list[Stmt] = [
            Loop(i, as_expr(SIZE), (store,)),
            Loop(i, as_expr(3), (store,), "vector"),
            Loop(j, as_expr(2), (whole,)),  # what is read stays in a register meanwhile
        ]
        if value in moved:
            bodies.append(Loop(i, as_expr(SIZE), (If(i < 5, (store,)),), "vector"))
        yield Program(f"k{number}", (a, b), (c,), tuple(bodies))
    for n in (4, 8):
        yield transposed(dtype, n)


def transposed(dtype: DType, n: int) -> Program:
    """A square turned in registers."""
    a, b = Buffer("a", (n, n), dtype), Buffer("b", (n, n), dtype)
    tile = Buffer("tile", (n, n), dtype, scope="register")

    def rows(store: Store) -> Stmt:
        return Loop(i, as_expr(n), (Loop(j, as_expr(n), (store,), "vector"),), "unroll")

    into, out_of = Store(tile, (i, j), a[i, j]), Store(b, (i, j), tile[i, j])
    body = Allocate(tile, (rows(into), Transpose(tile), rows(out_of)))
    return Program(f"t{n}", (a,), (b,), (body,))


@pytest.mark.parametrize("name", ["f64", "f32", "f16", "bf16", "i64", "u64", "i32", "u8", "bool"])
@pytest.mark.parametrize("target", TARGETS, ids=TARGET_NAMES)
def test_nothing_is_called_that_does_not_exist(target: CpuTarget, name: str) -> None:
    module, refused = Module(target), []
    for program in programs(parse_dtype(name)):
        try:
            emit_program(program, module)
        except NoCodeError as error:
            refused.append(error)
    assert len(module.functions) > len(refused)
    assert unknown_symbols(LlvmGenerator(target).objects([module.text()], NO_CACHE)) == []


def test_code_that_calls_what_does_not_exist_is_not_loaded() -> None:
    text = "declare void @no_such()\ndefine void @f() {\n call void @no_such()\n ret void\n}"
    objects = LlvmGenerator(HOST).objects([text], NO_CACHE)
    with pytest.raises(WhetError, match="WH1304 generated code calls no_such, which nothing"):
        Library(objects)
    Library(objects, {"no_such": 1})  # nothing calls it here


@pytest.mark.parametrize("damage", [b"", b"MZ", b"\x7fELF\x02\x01" + bytes(60)])
def test_what_is_no_object_is_not_loaded(damage: bytes) -> None:
    with pytest.raises(WhetError, match="WH1304"):
        Library([damage])


# ------------------------------------------------------------------------------------- numbers
def converted(values: Array, source: DType, dtype: DType, target: CpuTarget, kind: str) -> Array:
    """The values by native code, in vectors of eight or one by one."""
    a, b = Buffer("a", (values.size,), source), Buffer("b", (values.size,), dtype)
    at = i * 8 + j
    inner = Loop(j, as_expr(8), (Store(b, (at,), cast(a[at], dtype)),), kind)  # type: ignore[arg-type]
    body = Loop(i, as_expr(values.size // 8), (inner,))
    (got,) = run_native(Program("kernel", (a,), (b,), (body,)), [values], target=target)
    return got


def same_bits(got: Array, expected: Array) -> None:
    """Equal, zeros with their sign, and NaN where NaN is."""
    word = np.dtype(f"u{got.dtype.itemsize}")
    with np.errstate(invalid="ignore"):
        nan = np.isnan(expected.astype(np.float64))
        np.testing.assert_array_equal(np.isnan(got.astype(np.float64)), nan)
    np.testing.assert_array_equal(got.view(word)[~nan], expected.view(word)[~nan])


@here
@pytest.mark.parametrize("dtype", [f16, bf16], ids=str)
@pytest.mark.parametrize("kind", ["vector", "serial"])
def test_every_half_is_widened(dtype: DType, kind: str, target: CpuTarget) -> None:
    values = np.arange(1 << 16, dtype=np.uint16).view(dtype.numpy)
    with np.errstate(invalid="ignore"):
        same_bits(converted(values, dtype, f32, target, kind), values.astype(np.float32))


@here
@pytest.mark.parametrize("dtype", [f16, bf16], ids=str)
@pytest.mark.parametrize("kind", ["vector", "serial"])
def test_numbers_are_rounded_to_the_nearest_half(
    dtype: DType, kind: str, target: CpuTarget
) -> None:
    """Each half, what lies in the middle between two, and their neighbours; then any bits."""
    with np.errstate(all="ignore"):
        halves = np.arange(1 << 16, dtype=np.uint16).view(dtype.numpy).astype(np.float64)
        middles = ((halves[:-1] + halves[1:]) / 2).astype(np.float32)
        near = [np.nextafter(middles, np.float32(sign * np.inf)) for sign in (1, -1)]
        bits = np.random.default_rng(0).integers(0, 1 << 32, 1 << 15, dtype=np.uint32)
        quiet = np.array([0x7FC00000, 0xFFC00000, 0x7F800001, 0xFFBFFFFF], np.uint32)
        values = np.concatenate([halves.astype(np.float32), middles, *near, bits.view(np.float32),
                                 quiet.view(np.float32)])  # fmt: skip
        values = values[: values.size // 8 * 8]
        same_bits(converted(values, f32, dtype, target, kind), values.astype(dtype.numpy))


@here
@pytest.mark.parametrize("dtype", [f16, bf16], ids=str)
@pytest.mark.parametrize("n", [4, 8])
def test_halves_are_moved_as_they_are(dtype: DType, n: int, target: CpuTarget) -> None:
    """Also those that are no numbers; without code of the type's own for it."""
    values = np.random.default_rng(0).integers(0, 1 << 16, (n, n), dtype=np.uint16)
    values[0, :2] = 0x7F81, 0x7C01  # signalling NaNs
    (got,) = run_native(transposed(dtype, n), [values.view(dtype.numpy)], target=target)
    np.testing.assert_array_equal(got.view(np.uint16), values.T)
