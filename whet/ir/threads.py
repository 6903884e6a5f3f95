"""Statements of threads: what loop programs for GPUs consist of beside ordinary statements.

    grid b in 98:                                  independent clusters of blocks
      cluster r in 4:                              blocks that read each other's shared memory
        ring = allocate f32[3, 64, 36] in shared   one for every block
        warp w in 4:
          lane l in 32:                            from here on the code of one thread
            acc = allocate f32[4, 4] in registers
            copy ring[0, w, l] <- x[b, l], 4 elements
            commit
            wait 0
            barrier block

The loops grid, cluster, warp and lane stand inside each other, in this order, with nothing but
allocations between them; cluster may be missing.  The body of the lane loop is the code of one
thread, and all threads of a cluster run it together.  In it, serial and unrolled loops, branches
and stores mean what they always do; a vector loop is a run of elements that one thread moves at
once, where they are neighbours.

*Memory.*  Buffers of scope `register` belong to a thread; their indices must be known after
unrolling.  Buffers of scope `shared` belong to a block; one that is allocated outside the cluster
loop has the rank as its first axis and is distributed: a block writes its own part, and after a
barrier of the cluster reads those of others.  What one thread writes, another may read after a
barrier; what it writes to parameters of the program, only threads of its block may.

*Lanes.*  The lanes of a warp read each other's registers without a barrier: `other[0] <- acc[0] of
lane ^ 16` gives every lane what the one 16 from it has.

*Matrices.*  Buffers of scope `fragment` belong to a warp: their last two axes are a matrix whose
elements are spread over the lanes, all before count matrices.  `ROLES` says which element belongs
to which lane.  A loop of kind `fragment` runs over the elements of such a matrix in row-major
order, each in the lane that holds it.

`whet.ir.lockstep` is the plain meaning of such programs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from whet.core.types import Array
from whet.ir.expr import Const, Expr, Read
from whet.ir.program import Allocate, Block, Buffer, Loop, Program, Stmt, Store, walk
from whet.ir.tensor import subexpressions

WARP = 32
"""Lanes of a warp."""
THREAD_LOOPS = ("grid", "cluster", "warp", "lane")
"""The loops around the code of a thread, outermost first."""

BarrierScope = Literal["warp", "block", "cluster"]
Role = Literal["left", "right", "sum"]


class ThreadStmt(Stmt):
    """Base of the statements that only threads have; none has statements inside it."""

    __slots__ = ()

    @property
    def blocks(self) -> tuple[Block, ...]:
        return ()


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Copy(ThreadStmt):
    """target[at...] = source[start...], a run along both last axes that moves in the background.

    Where `valid` does not hold, nothing is read and the run is zero.  The elements are undefined
    until the group that the copy is committed to has been waited for.  `near` says that the block
    will read them again, so that they are worth a place in the processor's own cache.
    """

    target: Buffer
    at: tuple[Expr, ...]
    source: Buffer
    start: tuple[Expr, ...]
    elements: int
    valid: Expr
    near: bool = False

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return (*self.at, *self.start, self.valid)

    def rebuild(self, expressions: Sequence[Expr], blocks: Sequence[Block]) -> Copy:
        split = len(self.at)
        *indices, valid = expressions
        at, start = tuple(indices[:split]), tuple(indices[split:])
        return Copy(self.target, at, self.source, start, self.elements, valid, self.near)

    @property
    def text(self) -> str:
        known = isinstance(self.valid, Const) and self.valid.value
        condition = "" if known else f" if {self.valid}"
        return (
            f"copy {'near ' * self.near}{_place(self.target, self.at)} <- "
            f"{_place(self.source, self.start)}, {self.elements} elements{condition}"
        )


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Commit(ThreadStmt):
    """Closes a group: all copies that this thread began since the last one, maybe none."""

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return ()

    def rebuild(self, expressions: Sequence[Expr], blocks: Sequence[Block]) -> Commit:
        return self

    @property
    def text(self) -> str:
        return "commit"


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Wait(ThreadStmt):
    """Waits until at most `pending` of this thread's latest groups are still under way."""

    pending: int

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return ()

    def rebuild(self, expressions: Sequence[Expr], blocks: Sequence[Block]) -> Wait:
        return self

    @property
    def text(self) -> str:
        return f"wait {self.pending}"


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Barrier(ThreadStmt):
    """All threads of the warp, block or cluster arrive here before one goes on."""

    scope: BarrierScope = "block"

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return ()

    def rebuild(self, expressions: Sequence[Expr], blocks: Sequence[Block]) -> Barrier:
        return self

    @property
    def text(self) -> str:
        return f"barrier {self.scope}"


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Arrive(ThreadStmt):
    """The first half of a barrier of the cluster: this thread has done what others wait for."""

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return ()

    def rebuild(self, expressions: Sequence[Expr], blocks: Sequence[Block]) -> Arrive:
        return self

    @property
    def text(self) -> str:
        return "arrive cluster"


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class AwaitArrivals(ThreadStmt):
    """The second half of a barrier of the cluster: waits until all its threads have arrived.

    What they did in front of their arrival has happened then, and what they did behind it not.
    """

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return ()

    def rebuild(self, expressions: Sequence[Expr], blocks: Sequence[Block]) -> AwaitArrivals:
        return self

    @property
    def text(self) -> str:
        return "await cluster"


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Exchange(ThreadStmt):
    """target[at...] = what lane `lane ^ mask` of the warp has in source[start...].

    Both are registers of one type.  All lanes of a warp take part, with the same indices.
    """

    target: Buffer
    at: tuple[Expr, ...]
    source: Buffer
    start: tuple[Expr, ...]
    mask: int

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return (*self.at, *self.start)

    def rebuild(self, expressions: Sequence[Expr], blocks: Sequence[Block]) -> Exchange:
        split = len(self.at)
        at, start = tuple(expressions[:split]), tuple(expressions[split:])
        return Exchange(self.target, at, self.source, start, self.mask)

    @property
    def text(self) -> str:
        source = _place(self.source, self.start)
        return f"exchange {_place(self.target, self.at)} <- {source} of lane ^ {self.mask}"


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class MatrixLoad(ThreadStmt):
    """fragment[number...] = the matrix in shared memory that begins at source[at...].

    Its rows and columns are the last two axes of the source, or columns and rows where it is
    `turned`; all lanes of a warp take part, with the same indices.
    """

    fragment: Buffer
    number: tuple[Expr, ...]
    source: Buffer
    at: tuple[Expr, ...]
    turned: bool = False

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return (*self.number, *self.at)

    def rebuild(self, expressions: Sequence[Expr], blocks: Sequence[Block]) -> MatrixLoad:
        split = len(self.number)
        number, at = tuple(expressions[:split]), tuple(expressions[split:])
        return MatrixLoad(self.fragment, number, self.source, at, self.turned)

    @property
    def text(self) -> str:
        turned = ".T" if self.turned else ""
        place = f"{_place(self.source, self.at)}{turned}"
        return f"load {_place(self.fragment, self.number)} <- {place}"


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class MatrixMultiplyAdd(ThreadStmt):
    """total[...] += left[...] @ right[...].T, matrices that a warp holds."""

    total: Buffer
    total_number: tuple[Expr, ...]
    left: Buffer
    left_number: tuple[Expr, ...]
    right: Buffer
    right_number: tuple[Expr, ...]

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return (*self.total_number, *self.left_number, *self.right_number)

    def rebuild(self, expressions: Sequence[Expr], blocks: Sequence[Block]) -> MatrixMultiplyAdd:
        one = len(self.total_number)
        two = one + len(self.left_number)
        found = tuple(expressions)
        return MatrixMultiplyAdd(
            self.total, found[:one], self.left, found[one:two], self.right, found[two:]
        )

    @property
    def text(self) -> str:
        return (
            f"{_place(self.total, self.total_number)} += {_place(self.left, self.left_number)} "
            f"@ {_place(self.right, self.right_number)}.T"
        )


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class AwaitInputs(ThreadStmt):
    """Waits for the kernels before this one: what they wrote may be read only behind it.

    Before it, a kernel that was launched early may read constants alone, and write nothing but
    registers and shared memory.
    """

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return ()

    def rebuild(self, expressions: Sequence[Expr], blocks: Sequence[Block]) -> AwaitInputs:
        return self

    @property
    def text(self) -> str:
        return "await inputs"


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class LaunchNext(ThreadStmt):
    """Allows the next kernel to be launched once all threads of this one have come here: a hint,
    for it awaits the end of this kernel before it reads."""

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return ()

    def rebuild(self, expressions: Sequence[Expr], blocks: Sequence[Block]) -> LaunchNext:
        return self

    @property
    def text(self) -> str:
        return "launch next"


def _place(buffer: Buffer, indices: Sequence[Expr]) -> str:
    return f"{buffer.name}[{', '.join(map(str, indices))}]"


# -------------------------------------------------------------------------------------- matrices
def lane_elements(role: Role, rows: int, columns: int) -> Array:
    """The elements of a matrix that every lane holds, in its order: row-major positions [32, n].

    left  [16, k]: a warp's rows of the first factor, k = 32 bytes
    right [16, k]: rows of the second factor, which are columns of the product
    sum   [16, 16]: their product
    """
    lane = np.arange(WARP)[:, None]
    row, pair = lane // 4, lane % 4
    if role == "sum":
        part = np.arange(8)[None, :]
        at = row + part // 2 % 2 * 8, part // 4 * 8 + pair * 2 + part % 2
    else:
        run = columns // 8  # neighbours that one register holds
        part = np.arange(4 * run)[None, :]
        register, within = part // run, part % run
        high, right = register % 2, register // 2
        if role == "right":
            high, right = right, high
        at = row + high * 8, right * (columns // 2) + pair * run + within
    assert rows == 16, "matrices of a warp have 16 rows"
    return at[0] * columns + at[1]


def roles(program: Program) -> dict[Buffer, Role]:
    """The role of every fragment, by the products that it takes part in.

    One that takes part in none has the role of the fragments that it is computed from or to.
    """
    found: dict[Buffer, Role] = {}
    together: list[tuple[Buffer, ...]] = []
    for stmt in walk(program.body):
        if isinstance(stmt, MatrixMultiplyAdd):
            found[stmt.total], found[stmt.left], found[stmt.right] = "sum", "left", "right"
        elif isinstance(stmt, Loop) and stmt.kind == "fragment":
            together.append(fragments_in(stmt))
    known = -1
    while known < len(found):  # a role may come by way of several loops
        known = len(found)
        for fragments in together:
            role = next((found[f] for f in fragments if f in found), None)
            if role is not None:
                found |= {f: role for f in fragments if f not in found}
    return found


def fragments_in(loop: Loop) -> tuple[Buffer, ...]:
    """The fragments whose elements a loop reads or stores, in order."""
    found: dict[Buffer, None] = {}
    for stmt in walk(loop.body):
        named = [stmt.buffer] if isinstance(stmt, Store) else []
        reads = (e for e in subexpressions(*stmt.expressions) if isinstance(e, Read))
        named += [e.tensor for e in reads if isinstance(e.tensor, Buffer)]
        found |= dict.fromkeys(b for b in named if b.scope == "fragment")
    return tuple(found)


# -------------------------------------------------------------------------------------- structure
@dataclass(frozen=True, eq=False)
class ThreadNest:
    """The loops around the code of a thread, and the buffers between them."""

    grid: Loop
    cluster: Loop | None
    warp: Loop
    lane: Loop
    distributed: tuple[Buffer, ...]
    """Shared buffers with an axis of ranks."""
    shared: tuple[Buffer, ...]

    @property
    def body(self) -> Block:
        return self.lane.body

    @property
    def blocks(self) -> int:
        """Blocks of a cluster."""
        return extent_of(self.cluster) if self.cluster else 1

    @property
    def warps(self) -> int:
        return extent_of(self.warp)


def extent_of(loop: Loop) -> int:
    assert isinstance(loop.extent, Const), f"the extent of {loop.var} is not known"
    return int(loop.extent.value)


def thread_nest(stmt: Stmt) -> ThreadNest | None:
    """The loops of a statement that is code of threads; None for any other."""
    if not isinstance(stmt, Loop) or stmt.kind != "grid":
        return None
    found: dict[str, Loop] = {"grid": stmt}
    allocated: list[tuple[Buffer, bool]] = []
    inner = stmt.body
    while "lane" not in found:
        assert len(inner) == 1, "nothing but allocations stands between the loops of threads"
        (step,) = inner
        if isinstance(step, Allocate):
            allocated.append((step.buffer, "cluster" in found))
        else:
            assert isinstance(step, Loop), str(step)
            assert step.kind in THREAD_LOOPS, str(step)
            found[step.kind] = step
        inner = step.blocks[0]
    ranked = "cluster" in found
    return ThreadNest(
        found["grid"], found.get("cluster"), found["warp"], found["lane"],
        tuple(b for b, inside in allocated if ranked and not inside),
        tuple(b for b, inside in allocated if inside or not ranked),
    )  # fmt: skip


def thread_nests(program: Program) -> Iterator[ThreadNest]:
    """The parts of a program that are code of threads, in order."""
    for stmt in program.body:
        nest = thread_nest(stmt)
        if nest is not None:
            yield nest
