"""The statements of threads: text, parts, and which lane holds which element."""

from __future__ import annotations

import pytest

from tests.ir.thread_programs import (
    B,
    L,
    W,
    allocate,
    copy,
    indices,
    loop,
    product,
    ring,
    split_sum,
    store,
    threads,
    two_kernels,
)
from whet.core.dtypes import f16, f32
from whet.core.errors import WhetError
from whet.ir.expr import Var, const
from whet.ir.lockstep import run_threads
from whet.ir.program import Buffer, Loop, Program, walk
from whet.ir.threads import (
    WARP,
    Arrive,
    AwaitArrivals,
    AwaitInputs,
    Barrier,
    Commit,
    Exchange,
    LaunchNext,
    MatrixLoad,
    MatrixMultiplyAdd,
    Role,
    ThreadStmt,
    Wait,
    fragments_in,
    lane_elements,
    roles,
    thread_nest,
    thread_nests,
)

X, TILE = Buffer("x", (64, 8), f16), Buffer("tile", (64, 16), f16, scope="shared")
LEFT = Buffer("left", (2, 16, 16), f16, scope="fragment")
RIGHT = Buffer("right", (2, 16, 16), f16, scope="fragment")
SUM = Buffer("sum", (2, 2, 16, 16), f32, scope="fragment")
TOTALS = Buffer("totals", (4,), f32, scope="register")
STATEMENTS: list[tuple[ThreadStmt, str]] = [
    (copy(TILE, [L, 0], X, [B, 0], 8), "copy tile[l, 0] <- x[b, 0], 8 elements"),
    (
        copy(TILE, [L, 8], X, [B + L, 0], 8, B + L < 64),
        "copy tile[l, 8] <- x[b + l, 0], 8 elements if b + l < 64",
    ),
    (Commit(), "commit"),
    (Wait(2), "wait 2"),
    (Barrier(), "barrier block"),
    (Barrier("cluster"), "barrier cluster"),
    (
        Exchange(TOTALS, indices(1), TOTALS, indices(0), 16),
        "exchange totals[1] <- totals[0] of lane ^ 16",
    ),
    (MatrixLoad(LEFT, indices(1), TILE, indices(W * 16, 0)), "load left[1] <- tile[w * 16, 0]"),
    (
        MatrixLoad(LEFT, indices(1), TILE, indices(0, W * 16), turned=True),
        "load left[1] <- tile[0, w * 16].T",
    ),
    (
        MatrixMultiplyAdd(SUM, indices(0, 1), LEFT, indices(0), RIGHT, indices(1)),
        "sum[0, 1] += left[0] @ right[1].T",
    ),
    (Arrive(), "arrive cluster"),
    (AwaitArrivals(), "await cluster"),
    (AwaitInputs(), "await inputs"),
    (LaunchNext(), "launch next"),
]


@pytest.mark.parametrize(("stmt", "text"), STATEMENTS, ids=[text for _, text in STATEMENTS])
def test_a_statement_has_a_text_and_is_made_of_what_it_contains(
    stmt: ThreadStmt, text: str
) -> None:
    assert str(stmt) == text
    assert stmt.rebuild(stmt.expressions, stmt.blocks) is stmt


def test_every_kind_of_statement_is_tried() -> None:
    known = {kind.__name__ for kind in ThreadStmt.__subclasses__()}
    assert {type(s).__name__ for s, _ in STATEMENTS} == known


# -------------------------------------------------------------------------------------- matrices
@pytest.mark.parametrize(
    ("role", "columns"), [("left", 16), ("left", 8), ("right", 16), ("right", 8), ("sum", 16)]
)
def test_every_element_is_held_by_one_lane(role: Role, columns: int) -> None:
    held = lane_elements(role, 16, columns)
    assert held.shape == (WARP, 16 * columns // WARP)
    assert sorted(held.reshape(-1).tolist()) == list(range(16 * columns))


def test_elements_of_lanes_are_those_of_the_instruction_set() -> None:
    """mma.m16n8k16: the first factor, and two sums beside each other."""
    lane, columns = 5, 16  # group 1, second in it
    a = [(1, 2), (1, 3), (9, 2), (9, 3), (1, 10), (1, 11), (9, 10), (9, 11)]
    c = [(1, 2), (1, 3), (9, 2), (9, 3), (1, 10), (1, 11), (9, 10), (9, 11)]
    b = [(1, 2), (1, 3), (1, 10), (1, 11), (9, 2), (9, 3), (9, 10), (9, 11)]
    for role, expected in (("left", a), ("sum", c), ("right", b)):
        positions = lane_elements(role, 16, columns)[lane]  # type: ignore[arg-type]
        assert [divmod(int(p), columns) for p in positions] == expected


E = Var("e")
FIRST, SECOND, OTHER = (
    Buffer(name, (16, 16), f32, scope="fragment") for name in ("first", "second", "other")
)


def moved(target: Buffer, source: Buffer) -> Loop:
    element = (E // 16, E % 16)
    return loop(E, 256, store(target, element, source[element]), kind="fragment")


def test_roles_go_from_matrix_to_matrix() -> None:
    total = Buffer("total", (16, 16), f32, scope="fragment")
    multiply = MatrixMultiplyAdd(total, (), LEFT, indices(0), RIGHT, indices(0))
    # `first` has its role from `second`, which has it from a later loop.
    body = (moved(FIRST, SECOND), multiply, moved(SECOND, total))
    found = roles(Program("p", (), (), body))
    assert found == {total: "sum", LEFT: "left", RIGHT: "right", SECOND: "sum", FIRST: "sum"}
    assert fragments_in(body[0]) == (FIRST, SECOND)  # type: ignore[arg-type]


def test_a_matrix_without_a_role_is_an_error() -> None:
    y = Buffer("y", (16, 16), f32)
    fill = loop(E, 256, store(OTHER, [E // 16, E % 16], const(0.0, f32)), kind="fragment")
    nest = threads(allocate([OTHER], (fill,)), grid=1, warps=1)
    with pytest.raises(WhetError, match="WH1308 matrices 'other' take part in no product"):
        run_threads(Program("p", (), (y,), (nest,)), [])


# -------------------------------------------------------------------------------------- structure
def test_the_loops_around_a_thread() -> None:
    (nest,) = thread_nests(split_sum())
    assert (nest.blocks, nest.warps) == (4, 1)
    assert [b.name for b in nest.distributed] == ["parts"]
    assert nest.shared == ()
    assert nest.body is nest.lane.body


def test_a_block_alone_has_no_distributed_memory() -> None:
    (nest,) = thread_nests(ring())
    assert (nest.cluster, nest.blocks, nest.warps, nest.distributed) == (None, 1, 2, ())
    assert [b.name for b in nest.shared] == ["left", "right"]


def test_plain_statements_are_no_code_of_threads() -> None:
    program = two_kernels()
    assert [thread_nest(s) is None for s in program.body] == [False, True, False]


def test_a_walk_meets_the_statements_of_threads() -> None:
    found = [type(s).__name__ for s in walk(product(f32).body) if isinstance(s, ThreadStmt)]
    assert found == [
        "AwaitInputs", "Copy", "Copy", "Commit", "Wait", "Barrier", "MatrixLoad", "MatrixLoad",
        "MatrixMultiplyAdd", "Barrier",
    ]  # fmt: skip
