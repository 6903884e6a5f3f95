"""Statements of threads, run for a few clusters at a time."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from whet.core.errors import check, fail
from whet.core.types import Array
from whet.ir.expr import Expr
from whet.ir.interpreter import run_block
from whet.ir.lockstep.copies import Copies
from whet.ir.lockstep.evaluate import Env, Evaluator
from whet.ir.lockstep.fragments import Fragments, load, multiply_add
from whet.ir.lockstep.history import History
from whet.ir.lockstep.lanes import exchange
from whet.ir.lockstep.memory import GLOBAL_REACH, Parameter, Region, Shared
from whet.ir.lockstep.storage import Private, Storage, Value
from whet.ir.lockstep.team import Team
from whet.ir.program import (
    Align,
    Allocate,
    Buffer,
    If,
    Let,
    Loop,
    Prefetch,
    Program,
    Stmt,
    Store,
    Transpose,
    While,
    walk,
)
from whet.ir.tensor import Tensor
from whet.ir.threads import (
    WARP,
    Arrive,
    AwaitArrivals,
    AwaitInputs,
    Barrier,
    Commit,
    Copy,
    Exchange,
    LaunchNext,
    MatrixLoad,
    MatrixMultiplyAdd,
    Role,
    ThreadNest,
    Wait,
    extent_of,
    fragments_in,
    lane_elements,
    roles,
    thread_nest,
)

THREADS_AT_ONCE = 8192
CELLS_AT_ONCE = 1 << 20
"""Cells of shared memory: beyond these, more clusters at once gain nothing."""


def run_threads(
    program: Program, arrays: Sequence[Array], constants: Collection[Buffer] = ()
) -> tuple[Array, ...]:
    """The outputs of a program; those of `constants` may be read before inputs are awaited.

    Elements of outputs that nothing was written to are NaN, or 0x55 in integers.
    """
    regions = {
        b: Region(b, a, constant=b in constants)
        for b, a in zip(program.inputs, arrays, strict=True)
    }
    regions |= {b: Region(b, None) for b in (*program.outputs, *program.workspace)}
    held = roles(program)
    with np.errstate(all="ignore"):
        for stmt in program.body:
            nest = thread_nest(stmt)
            if nest is None:
                _run_plain(stmt, regions)
            else:
                _run_nest(nest, regions, held)
    return tuple(regions[b].array for b in program.outputs)


def _run_plain(stmt: Stmt, regions: Mapping[Buffer, Region]) -> None:
    memory: dict[Tensor, Array] = {b: r.array for b, r in regions.items()}
    run_block((stmt,), memory, {})
    for inner in walk((stmt,)):
        if isinstance(inner, Store) and inner.buffer in regions:
            regions[inner.buffer].written[...] = True


def _run_nest(
    nest: ThreadNest, regions: Mapping[Buffer, Region], held: Mapping[Buffer, Role]
) -> None:
    clusters = extent_of(nest.grid)
    threads = nest.blocks * nest.warps * WARP
    cells = sum(math.prod(b.shape) for b in nest.distributed) + nest.blocks * sum(
        math.prod(b.shape) for b in nest.shared
    )
    at_once = max(1, min(THREADS_AT_ONCE // threads, CELLS_AT_ONCE // max(cells, 1)))
    histories = {b: _history(r) for b, r in regions.items()}
    for first in range(0, clusters, at_once):
        team = Team(nest, first, min(at_once, clusters - first))
        Kernel(nest, team, regions, histories, held).run()


def _history(region: Region) -> History:
    """The accesses of one kernel; nobody asks about those of inputs."""
    cells = 0 if region.is_input else len(region.data)
    return History(cells, GLOBAL_REACH)


class Kernel:
    """A team of threads at work."""

    def __init__(
        self, nest: ThreadNest, team: Team, regions: Mapping[Buffer, Region],
        histories: Mapping[Buffer, History], held: Mapping[Buffer, Role],
    ) -> None:  # fmt: skip
        self.nest, self.team, self.held = nest, team, held
        self.copies = Copies(team)
        self.awaited: Array = np.zeros(team.size, bool)
        awaits = any(isinstance(s, AwaitInputs) for s in walk(nest.body))
        self.storages: dict[Tensor, Storage] = {
            b: Parameter(r, team, histories[b], self.awaited if awaits else None)
            for b, r in regions.items()
        }
        self.evaluator = Evaluator(team, self.storages)

    def run(self) -> None:
        shared = [
            Shared(b, self.team, distributed=b in self.nest.distributed)
            for b in (*self.nest.distributed, *self.nest.shared)
        ]
        self.storages |= {s.buffer: s for s in shared}
        self.block(self.nest.body, self.team.variables, self.team.ids)
        self.team.finish()
        for storage in shared:
            storage.finish()

    def block(self, body: Sequence[Stmt], env: Env, ids: Array) -> None:
        if len(ids):
            for stmt in body:
                self.statement(stmt, env, ids)

    def statement(self, stmt: Stmt, env: Env, ids: Array) -> None:
        match stmt:
            case Store(buffer=buffer, indices=indices, value=value):
                made = self.evaluator.value(value, env, ids)
                self.evaluator.storage(buffer).write(self.values(indices, env, ids), ids, made)
            case Loop():
                self.loop(stmt, env, ids)
            case While(condition=condition, body=body):
                while len(ids := ids[self.holds(condition, env, ids)]):
                    self.block(body, env, ids)
            case If(condition=condition, then=then, other=other):
                holds = self.holds(condition, env, ids)
                self.block(then, env, ids[holds])
                self.block(other, env, ids[~holds])
            case Let(var=var, value=value, body=body):
                made = self.evaluator.value(value, env, ids)
                self.block(body, {**env, var: self.for_team(made, ids)}, ids)
            case Align(var=var, lanes=lanes, body=body):
                # Any number below would do; this one makes a program show what it does with it.
                self.block(body, {**env, var: np.int64(lanes // 2)}, ids)
            case Allocate(buffer=buffer, body=body):
                self.storages[buffer] = self.allocated(buffer)
                self.block(body, env, ids)
            case Transpose(tile=tile):
                registers = self.evaluator.storage(tile)
                assert isinstance(registers, Private)
                registers.transpose(ids)
            case Prefetch() | LaunchNext():
                pass
            case _:
                self.of_threads(stmt, env, ids)

    def of_threads(self, stmt: Stmt, env: Env, ids: Array) -> None:
        match stmt:
            case Copy(target=target, at=at, source=source, start=start, valid=valid):
                here = self.holds(valid, env, ids)
                self.copies.begin(
                    stmt, self.evaluator.storage(target), self.values(at, env, ids),
                    self.evaluator.storage(source), self.values(start, env, ids[here]), ids, here,
                )  # fmt: skip
            case Commit():
                self.copies.commit(ids)
            case Wait(pending=pending):
                self.copies.wait(ids, pending)
            case Barrier(scope=scope):
                self.team.barrier(scope, ids)
            case Arrive():
                self.team.arrive(ids)
            case AwaitArrivals():
                self.team.await_arrivals(ids)
            case Exchange(target=target, at=at, source=source, start=start):
                exchange(
                    stmt, self.evaluator.storage(target), self.values(at, env, ids),
                    self.evaluator.storage(source), self.values(start, env, ids), ids,
                )  # fmt: skip
            case MatrixLoad(fragment=fragment, number=number, source=source, at=at):
                load(
                    stmt, self.fragments(fragment), self.values(number, env, ids),
                    self.evaluator.storage(source), self.values(at, env, ids), ids,
                )  # fmt: skip
            case MatrixMultiplyAdd():
                matrices = (
                    (stmt.total, stmt.total_number),
                    (stmt.left, stmt.left_number),
                    (stmt.right, stmt.right_number),
                )
                found = [(self.fragments(b), self.values(n, env, ids)) for b, n in matrices]
                multiply_add(stmt, found, ids)
            case AwaitInputs():
                self.awaited[ids] = True
            case _:
                raise AssertionError(type(stmt))

    # ------------------------------------------------------------------------------------ loops
    def loop(self, stmt: Loop, env: Env, ids: Array) -> None:
        if stmt.kind == "fragment":
            self.fragment_loop(stmt, env, ids)
            return
        plain = stmt.kind in ("serial", "unroll", "vector")
        check(plain, "WH1308", f"a {stmt.kind} loop stands inside the code of a thread")
        extent = self.evaluator.value(stmt.extent, env, ids)
        for step in range(int(extent.max(initial=0)) if extent.ndim else int(extent)):
            on = ids[extent > step] if extent.ndim else ids
            self.block(stmt.body, {**env, stmt.var: np.int64(step)}, on)

    def fragment_loop(self, stmt: Loop, env: Env, ids: Array) -> None:
        """Runs over the elements of matrices: each lane over those that it holds."""
        kinds = {(self.held.get(b), b.shape[-2], b.shape[-1]) for b in fragments_in(stmt)}
        if len(kinds) != 1:
            fail("WH1308", f"the loop over {stmt.var} has not one kind of matrices")
        ((role, rows, columns),) = kinds
        if role is None:
            fail("WH1308", f"the matrices in the loop over {stmt.var} take part in no product")
        check(extent_of(stmt) == rows * columns, "WH1308",
              f"the loop over {stmt.var} does not run over the elements of a matrix")  # fmt: skip
        for element in lane_elements(role, rows, columns).T:
            self.block(stmt.body, {**env, stmt.var: element[self.team.lane]}, ids)

    # ----------------------------------------------------------------------------------- values
    def values(self, indices: Sequence[Expr], env: Env, ids: Array) -> list[Value]:
        return [self.evaluator.value(i, env, ids) for i in indices]

    def holds(self, condition: Expr, env: Env, ids: Array) -> Array:
        """A truth value for each thread."""
        return np.broadcast_to(self.evaluator.value(condition, env, ids), ids.shape)

    def for_team(self, value: Value, ids: Array) -> Value:
        """A value as variables have it."""
        if not value.ndim or self.team.is_whole(ids):
            return value
        spread = np.zeros(self.team.size, value.dtype)
        spread[ids] = value
        return spread

    # ----------------------------------------------------------------------------------- memory
    def allocated(self, buffer: Buffer) -> Storage:
        if buffer.scope == "fragment":
            if buffer not in self.held:
                fail("WH1308", f"matrices '{buffer.name}' take part in no product")
            return Fragments(buffer, self.team, self.held[buffer])
        check(buffer.scope != "shared", "WH1308",
              f"shared memory '{buffer.name}' is allocated inside code of a thread")  # fmt: skip
        return Private(buffer, self.team)

    def fragments(self, buffer: Buffer) -> Fragments:
        found = self.evaluator.storage(buffer)
        if not isinstance(found, Fragments):
            fail("WH1308", f"'{buffer.name}' is no matrix of a warp")
        return found
