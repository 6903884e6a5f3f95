"""CUDA text of loop programs."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.ir.thread_programs import (
    L,
    allocate,
    elementwise,
    loop,
    product,
    ring,
    split_sum,
    store,
    threads,
    turned_product,
    two_kernels,
    warp_totals,
)
from whet.codegen.cuda.emit import bounds_of, emit_program
from whet.codegen.cuda.generator import CudaGenerator
from whet.codegen.cuda.launch import Launch, in_turn, launches_of, lets_next_in
from whet.codegen.cuda.shared import shared_layout
from whet.core.dtypes import DType, bf16, bool_, f16, f32, f64, i8, i32, i64, u8
from whet.core.errors import NoCodeError, UsageError
from whet.core.gpu import PRESETS
from whet.core.types import Array
from whet.ir.expr import Expr, Var, call, cast, const, select
from whet.ir.program import Buffer, Program, Stmt, Store
from whet.ir.threads import Barrier, LaunchNext, Wait, lane_elements, thread_nests

AMPERE, HOPPER = PRESETS["cuda-sm_80"], PRESETS["cuda-sm_90a"]
AT, V = Var("i"), Var("v")


def text_of(program: Program) -> str:
    return emit_program(program, HOPPER)[0]


def plain(n: int, value: Callable[[Buffer, Expr], Expr], dtype: DType = f32) -> Program:
    """y[i] = value(x, i), a thread for every element."""
    x = Buffer("x", (n,), dtype)
    made = value(x, AT)
    y = Buffer("y", (n,), made.dtype)
    return Program("k", (x,), (y,), (loop(AT, n, store(y, (AT,), made), kind="parallel"),))


@pytest.mark.parametrize(
    "program",
    [elementwise(), ring(), split_sum(), warp_totals(),
     product(f16), turned_product(f16), turned_product(f32)],
    ids=["elementwise", "ring", "split_sum", "warp_totals", "product", "turned f16", "turned f32"],
)  # fmt: skip
def test_text(program: Program, golden: Callable[[str], None]) -> None:
    golden(text_of(program))


def test_every_statement_of_the_body_is_a_launch() -> None:
    assert launches_of(two_kernels(96)) == (
        Launch("two_kernels_0", 3, 1, 32, 0, awaits=False),
        Launch("two_kernels_1", 1, 1, 96, 0, awaits=False),
        Launch("two_kernels_2", 3, 1, 32, 0, awaits=True),
    )
    (found,) = launches_of(plain(1000, lambda x, i: x[i]))
    assert found == Launch("k_0", 4, 1, 256, 0, awaits=False)
    x, y = Buffer("x", (2,), f32), Buffer("y", (2,), f32)
    alone = Program("k", (x,), (y,), (store(y, (const(0, i64),), x[1]),))
    assert launches_of(alone) == (Launch("k_0", 1, 1, 1, 0, awaits=False),)


def test_what_takes_room_is_not_launched_behind_what_lets_it_in() -> None:
    tiles = (Launch("tiles", 300, 1, 128, 40_000, awaits=True),)
    map_ = (Launch("map", 300, 1, 128, 0, awaits=True),)
    order = [(tiles, True), (tiles, False), (tiles, False), (tiles, True), (map_, False)]
    found = [launches[0].awaits for launches in in_turn(order)]
    # The second one is large and lets nobody in; behind itself, nobody has let it in.
    assert found == [True, False, True, True, True]
    assert [*in_turn([((), True), (tiles, False)])] == [(), (replace(tiles[0], awaits=False),)]
    program = ring()
    assert not lets_next_in(program)
    (nest,) = program.body
    letting = replace(nest, body=(LaunchNext(), *nest.body))
    assert lets_next_in(replace(program, body=(nest, letting)))
    assert not lets_next_in(replace(program, body=(letting, nest)))


@pytest.mark.parametrize(
    ("clusters", "cluster", "threads", "shared", "wanted"),
    [
        (98, 1, 128, 0, "__launch_bounds__(128, 1)"),
        (392, 1, 128, 60_000, "__launch_bounds__(128, 3)"),
        (392, 1, 128, 110_000, "__launch_bounds__(128, 2)"),  # no more fit into shared memory
        (4000, 1, 256, 0, "__launch_bounds__(256, 2)"),  # 128 registers are a thread's own
        (4000, 1, 1024, 0, "__launch_bounds__(1024, 1)"),
        (50, 4, 128, 0, "__cluster_dims__() __launch_bounds__(128, 2)"),
    ],
)
def test_the_compiler_is_told_how_many_blocks_a_processor_gets(
    clusters: int, cluster: int, threads: int, shared: int, wanted: str
) -> None:
    launch = Launch("k_0", clusters, cluster, threads, shared, awaits=True)
    assert bounds_of(launch, HOPPER) == wanted


def test_older_gpus_get_no_newer_instructions() -> None:
    text = emit_program(ring(), AMPERE)[0]
    assert "griddepcontrol" not in text
    assert "cluster" not in text
    assert "cp.async" in text
    with pytest.raises(NoCodeError, match="'cluster_barrier' on this GPU") as error:
        emit_program(split_sum(), AMPERE)
    assert error.value.code == "WH1303"


def test_neighbours_move_at_once() -> None:
    """Sixteen bytes where the address is a multiple of them, fewer where it is not."""

    def copied(offset: int, dtype: DType = f32, width: int = 4) -> str:
        x, y = Buffer("x", (4096,), dtype), Buffer("y", (4096,), dtype)
        body = loop(V, width, store(y, (L * 16 + V + offset,), x[L * 16 + V]), kind="vector")
        return text_of(Program("k", (x,), (y,), (threads((body,), grid=2, warps=1),)))

    assert "*(uint4*)" in copied(0)
    assert "*(uint4*)" not in copied(2)
    assert "*(uint2*)" in copied(2)
    assert "*(uint" not in copied(1).split("*(const uint4*)", 1)[1]
    assert copied(0, f16, 8).count("*(uint4*)") == 1
    assert "uint4" in copied(0, f64, 2)
    assert "(unsigned int*)" in copied(0, u8, 4)


def test_index_arithmetic_is_as_narrow_as_it_can_be() -> None:
    small = text_of(plain(1000, lambda x, i: x[i % 7 + (i // 3)]))
    assert "long long" not in small
    assert re.search(r"\(unsigned\)\(i_\d+\) / 3u", small)
    numbers = text_of(plain(1 << 20, lambda x, i: cast(i * (1 << 20), f32)))
    assert "(long long)i_" in numbers
    below_zero = text_of(plain(100, lambda x, i: x[(i - 50) % 100]))
    assert "whet_mod<int>" in below_zero


def test_of_a_choice_the_other_side_is_not_read() -> None:
    def guarded(x: Buffer, i: Expr) -> Expr:
        inner = select(i < 3, x[i], const(0.0, f32))
        return inner * inner + call("exp", inner)

    assert re.search(r"\? x_\d+\[", text_of(plain(8, guarded)))


def in_vectors(value: Callable[[Buffer, Expr, Expr], Expr]) -> str:
    """The text of y[4 * i + v] = value(x, i, 4 * i + v), four elements at once."""
    x, y = Buffer("x", (64,), f32), Buffer("y", (64,), f32)
    place = AT * 4 + V
    inner = loop(V, 4, store(y, (place,), value(x, AT, place)), kind="vector")
    return text_of(Program("k", (x,), (y,), (loop(AT, 16, inner, kind="parallel"),)))


def test_a_wide_read_or_a_constant_is_chosen_once() -> None:
    text = in_vectors(lambda x, i, place: select(i < 3, x[place], const(-1.0, f32)))
    assert "?" not in text
    assert text.count("if (") == 2  # the thread's number, and the read
    assert text.count("__float_as_uint((-0x1.0000000000000p+0f))") == 4


def test_a_read_under_two_conditions_is_read_under_each() -> None:
    def value(x: Buffer, i: Expr, place: Expr) -> Expr:
        zero = const(0.0, f32)
        return select(i < 3, x[place], zero) + select(i > 5, x[place], zero) * 2.0

    assert len(re.findall(r"= x_\d+\[", in_vectors(value))) == 8


def test_half_precision_is_converted_behind_a_choice() -> None:
    text = text_of(plain(8, lambda x, i: select(i < 3, x[i], const(0.0, f16)), f16))
    assert re.search(r"if \(.*\) \{\s+s_\d+ = x_\d+\[", text)


def test_an_index_from_memory_is_checked() -> None:
    table, at = Buffer("table", (5,), f32), Buffer("at", (8,), i64)
    y = Buffer("y", (8,), f32)
    body = loop(AT, 8, store(y, (AT,), table[at[AT]]), kind="parallel")
    text, has_status = emit_program(Program("k", (table, at), (y,), (body,)), HOPPER)
    assert has_status
    assert "whet_inside(" in text
    assert "long long* status" in text
    assert not emit_program(plain(8, lambda x, i: x[i]), HOPPER)[1]


def test_what_is_used_twice_is_computed_once() -> None:
    def value(x: Buffer, i: Expr) -> Expr:
        e = call("exp", x[i])
        return e * e + e

    assert text_of(plain(8, value)).count("expf(") == 1


@pytest.mark.parametrize("dtype", [f16, bf16], ids=str)
def test_half_precision_is_rounded_after_every_step(dtype: DType) -> None:
    text = text_of(plain(8, lambda x, i: x[i] * x[i] + x[i], dtype))
    assert text.count(f"whet_round_{dtype}(") == 3  # its definition and two steps


@pytest.mark.parametrize("dtype", [f16, bf16], ids=str)
def test_what_is_stored_in_half_precision_is_rounded_once(dtype: DType) -> None:
    def chain(x: Buffer, i: Expr) -> Expr:
        step = cast(cast(x[i], f32) + 1.0, dtype)
        return cast(cast(step, f32) * 2.0, dtype)

    program = plain(8, chain, dtype)
    precision = {f16: "fp16", bf16: "bf16"}[dtype]
    rounded = emit_program(program, replace(HOPPER, precision=precision))[0]
    assert rounded.count(f"whet_to_{dtype}(") == 2  # its definition and the store
    assert "whet_round" not in rounded
    # Where the model itself says half precision, every step is rounded.
    assert text_of(program).count(f"whet_round_{dtype}(") == 2


def test_types_without_code() -> None:
    with pytest.raises(NoCodeError, match="sign of bool"):
        text_of(plain(8, lambda x, i: call("sign", x[i]), bool_))


def test_integers_wrap_around() -> None:
    assert "(unsigned int)" in text_of(plain(8, lambda x, i: x[i] + x[i], i32))
    assert "(signed char)" in text_of(plain(8, lambda x, i: x[i] * x[i], i8))


# ------------------------------------------------------------------------------- shared memory
A, B = (Buffer(name, (64,), f32, scope="shared") for name in "ab")


def layout(*between: Stmt) -> dict[str, int]:
    x = Buffer("x", (64,), f32)
    used = (Store(A, (L,), x[L]), *between, Store(B, (L,), x[L]))
    nest = threads(allocate([A, B], used), grid=1, warps=1)
    (found,) = thread_nests(Program("k", (x,), (), (nest,)))
    return {b.name: at for b, at in shared_layout(found).offsets.items()}


def test_buffers_share_memory_behind_a_barrier_alone() -> None:
    assert layout() == {"a": 0, "b": 256}
    assert layout(Barrier("warp")) == {"a": 0, "b": 256}
    assert layout(Barrier("block")) == {"a": 0, "b": 0}
    assert layout(Wait(0), Barrier("block")) == {"a": 0, "b": 0}


def test_accesses_that_are_not_checked_are_not_said_to_be() -> None:
    with pytest.raises(UsageError, match="does not check its accesses"):
        CudaGenerator(HOPPER).source(elementwise(), {})


# ------------------------------------------------------------------------------------- matrices
def evaluated(text: str, **known: int) -> int:
    """An integer expression of C."""
    for name, value in known.items():
        text = re.sub(rf"\b{name}_\d+\b", str(value), text)
    return int(eval(text.replace("/", "//"), {"__builtins__": {}}))


def loaded_by_rows(text: str, *, turned: bool) -> list[Array]:
    """The position in the source of every element that a lane gets of four matrices of 8 x 8, as
    ldmatrix is described: lane 8 n + r gives the address of row r of matrix n, and lane l gets two
    elements of row l / 4, or of column l / 4 if it turns them."""
    found = []
    name = "load_turned_matrix" if turned else "load_matrix"
    address = r"whet_start\(whet_shared_address\(\w+\) \+ (.*)\)"
    for offset in re.findall(rf"whet_{name}\(\(unsigned int\*\)\S+ \+ 0\), {address}\);", text):
        rows = np.array([evaluated(offset, w=0, l=lane) // 2 for lane in range(32)])
        lane, part = np.arange(32)[:, None], np.arange(8)[None, :]
        pair = lane % 4 * 2 + part % 2
        row, column = (pair, lane // 4) if turned else (lane // 4, pair)
        found.append(rows[part // 2 * 8 + row] + column)
    return found


@pytest.mark.parametrize("turned", [False, True])
def test_lanes_get_the_elements_that_they_hold(turned: bool) -> None:
    """The addresses that lanes give are those at which an instruction finds their elements."""
    program = turned_product(f16) if turned else product(f16)
    first, second = loaded_by_rows(text_of(program), turned=turned)
    # Rows of the factors in shared memory follow each other at these distances.
    steps = (40, 24) if turned else (24, 24)
    for role, got, step in (("left", first, steps[0]), ("right", second, steps[1])):
        row, column = np.divmod(lane_elements(role, 16, 16), 16)  # type: ignore[arg-type]
        want = column * step + row if turned else row * step + column
        np.testing.assert_array_equal(got, want)


def test_lanes_read_elements_of_32_bits_one_by_one() -> None:
    text = text_of(turned_product(f32))
    places = re.findall(r"\(\w+ \+ 0\)\[e_\d+\] = \(.*\)\[(.*)\];", text)
    for role, place, step in zip(("left", "right"), places, (36, 20), strict=True):
        got = [[evaluated(place, l=lane, e=e) for e in range(4)] for lane in range(32)]
        row, column = np.divmod(lane_elements(role, 16, 8), 8)  # type: ignore[arg-type]
        np.testing.assert_array_equal(got, column * step + row)
