"""Loop programs to CUDA C++: a kernel for every statement of the body.

    grid b in 8:                            extern "C" __global__ void k_0(const float* x, ...) {
      warp w in 4: lane l in 32:     ->       const int b_1 = blockIdx.x;
        barrier block                         ... __syncthreads();

Unrolled loops are left to the compiler, which must unroll them; vector loops are written out.
"""

from __future__ import annotations

from collections.abc import Sequence

from whet.codegen.cuda import thread_statements
from whet.codegen.cuda.indexing import Indices
from whet.codegen.cuda.launch import Launch, launches_of, parallel_loops, plain_extent
from whet.codegen.cuda.lines import Lines
from whet.codegen.cuda.places import Places
from whet.codegen.cuda.shared import shared_layout
from whet.codegen.cuda.spread import spread
from whet.codegen.cuda.support import memory_type, no_code, require_code, value_type
from whet.codegen.cuda.values import Values
from whet.codegen.cuda.vectors import store_vector
from whet.core.gpu import GpuTarget
from whet.ir.affine import affine
from whet.ir.expr import Const, Expr
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
)
from whet.ir.threads import ThreadNest, ThreadStmt, roles, thread_nest

_INT_RANGE = 1 << 31
_OWN_REGISTERS = 128
"""Registers of a thread that are not taken from it for the sake of more blocks."""


def emit_program(program: Program, target: GpuTarget) -> tuple[str, bool]:
    """The text of a program's kernels, and whether they take a status behind their parameters."""
    writers = [
        _kernel(program, stmt, launch, target)
        for stmt, launch in zip(program.body, launches_of(program), strict=True)
    ]
    has_status = any(w.lines.has_status for w in writers)
    called = dict.fromkeys(name for w in writers for name in w.lines.called)
    functions = Lines(target)
    functions.called = called
    bodies = [w.text(program, has_status=has_status) for w in writers]
    return "\n".join([functions.functions(), *bodies]) + "\n", has_status


def _kernel(program: Program, stmt: Stmt, launch: Launch, target: GpuTarget) -> _KernelWriter:
    writer = _KernelWriter(program, launch, target)
    nest = thread_nest(stmt)
    if nest is None:
        writer.plain(spread(stmt))
    else:
        writer.threads(nest)
    return writer


def bounds_of(launch: Launch, target: GpuTarget) -> str:
    """What the compiler is told of a launch.

    Without the number of blocks that a processor gets, it keeps registers for as many as fit, and
    every load waits for the use of the one before it.  Of clusters it is told that there are some;
    the launch says how large they are.
    """
    blocks = -(-launch.clusters * launch.cluster // target.processors)
    by_registers = target.registers_per_processor // (launch.threads * _OWN_REGISTERS)
    by_shared = target.shared_bytes_per_processor // max(launch.shared_bytes, 1)
    beside = max(min(blocks, by_registers, by_shared), 1)
    bounds = f"__launch_bounds__({launch.threads}, {beside})"
    return f"__cluster_dims__() {bounds}" if launch.cluster > 1 else bounds


class _KernelWriter:
    """Writes the statements of one kernel."""

    def __init__(self, program: Program, launch: Launch, target: GpuTarget) -> None:
        self.launch = launch
        self.lines = Lines(target)
        self.indices = Indices(self.lines)
        self.places = Places()
        self.values = Values(self.lines, self.indices, self.places)
        self.has_shared = False
        self.parameters: dict[Buffer, str] = {}
        for buffer in (*program.inputs, *program.outputs, *program.workspace):
            name = self.lines.name(buffer.name)
            self.parameters[buffer] = self.places.bases[buffer] = name
        self.places.roles = roles(program)

    def text(self, program: Program, *, has_status: bool) -> str:
        inputs = frozenset(program.inputs)
        listed = [
            f"const {memory_type(b.dtype)}* {name}" if b in inputs
            else f"{memory_type(b.dtype)}* __restrict__ {name}"
            for b, name in self.parameters.items()
        ]  # fmt: skip
        if has_status:
            listed.append("long long* status")
        bounds = bounds_of(self.launch, self.lines.target)
        head = f'extern "C" __global__ void {bounds} {self.launch.symbol}({", ".join(listed)}) {{'
        return "\n".join([head, *self.lines.lines, "}"])

    # ---------------------------------------------------------------------------------- kernels
    def plain(self, stmt: Stmt) -> None:
        """A thread for every round of the outer parallel loops."""
        loops = list(parallel_loops(stmt))
        total = plain_extent(stmt)
        if not loops:
            self.stmt(stmt)
            return
        self.lines.line("const int position = blockIdx.x * blockDim.x + threadIdx.x;")
        self.lines.line(f"if (position >= {total}) return;")
        require_code(total < _INT_RANGE, "so many rounds of parallel loops")
        self._plain_loops(loops, total)

    def _plain_loops(self, loops: Sequence[Loop], below: int) -> None:
        if not loops:
            return
        loop, *rest = loops
        extent = self.extent(loop)
        below //= extent
        name = self.lines.name(loop.var.name)
        self.lines.line(f"const int {name} = position / {below} % {extent};")
        with self.indices.symbol(loop.var, name, extent):
            if rest:
                self._plain_loops(rest, below)
            else:
                self.block(loop.body)

    def threads(self, nest: ThreadNest) -> None:
        """The code of one thread of a nest."""
        layout = shared_layout(nest)
        self.places.distributed = set(nest.distributed)
        self.places.rank = nest.cluster.var if nest.cluster else None
        if layout.offsets:
            self.lines.line("extern __shared__ __align__(1024) unsigned char whet_shared[];")
        for buffer, offset in layout.offsets.items():
            self.bind_shared(buffer, offset)
        self._thread_loops(
            nest,
            [
                (nest.grid, f"blockIdx.x / {nest.blocks}" if nest.cluster else "blockIdx.x"),
                *([(nest.cluster, f"blockIdx.x % {nest.blocks}")] if nest.cluster else []),
                (nest.warp, "threadIdx.x / 32"),
                (nest.lane, "threadIdx.x % 32"),
            ],
        )

    def _thread_loops(self, nest: ThreadNest, loops: Sequence[tuple[Loop, str]]) -> None:
        if not loops:
            self.block(nest.body)
            return
        (loop, text), *rest = loops
        name = self.lines.name(loop.var.name)
        self.lines.line(f"const int {name} = {text};")
        with self.indices.symbol(loop.var, name, self.extent(loop)):
            if loop is nest.lane:
                self.lane = name
            self._thread_loops(nest, rest)

    def bind_shared(self, buffer: Buffer, offset: int) -> None:
        kind, name = memory_type(buffer.dtype), self.lines.name(buffer.name)
        self.lines.line(f"{kind}* const {name} = ({kind}*)(whet_shared + {offset});")
        self.places.bases[buffer] = name

    # ------------------------------------------------------------------------------- statements
    def block(self, body: Sequence[Stmt]) -> None:
        for stmt in body:
            self.stmt(stmt)

    def stmt(self, stmt: Stmt) -> None:
        match stmt:
            case Store():
                self.store(stmt)
            case Loop(kind="vector"):
                self.vector(stmt)
            case Loop(kind="fragment"):
                thread_statements.fragment_loop(self, stmt)
            case Loop():
                self.loop(stmt)
            case While(condition=condition, body=body):
                with self.lines.block("while (true)"):
                    self.lines.line(f"if (!({self.values.evaluate(condition)})) break;")
                    self.block(body)
            case If(condition=condition, then=then, other=other):
                self.choice(condition, then, other)
            case Let():
                self.let(stmt)
            case Align(var=var, body=body):
                with self.indices.symbol(var, "0", 1):
                    self.block(body)
            case Allocate():
                self.allocate(stmt)
            case Transpose(tile=tile):
                self.transpose(tile)
            case Prefetch():
                pass
            case ThreadStmt():
                thread_statements.write(self, stmt)
            case _:
                no_code(f"a {type(stmt).__name__}")

    def extent(self, stmt: Loop) -> int:
        require_code(isinstance(stmt.extent, Const), f"the loop extent {stmt.extent}")
        assert isinstance(stmt.extent, Const)
        return int(stmt.extent.value)

    def store(self, stmt: Store) -> None:
        self.values.begin(*stmt.indices, stmt.value)
        base = self.places.bases[stmt.buffer]
        if stmt.buffer.scope == "fragment":
            place = self.values.element(stmt.buffer, stmt.indices)
        else:
            at = self.values.checked(stmt.buffer, stmt.indices)
            place = self.values.text_of(self.places.address(stmt.buffer, at).expr())
        value = self.values.to_memory(stmt.value, stmt.buffer)
        self.lines.line(f"{base}[{place}] = {value};")

    def vector(self, stmt: Loop) -> None:
        extent = self.extent(stmt)
        if all(isinstance(s, Store) for s in stmt.body):
            for inner in stmt.body:
                assert isinstance(inner, Store)
                store_vector(self.values, inner, stmt.var, extent)
        else:
            self.loop(Loop(stmt.var, stmt.extent, stmt.body, "unroll"))

    def loop(self, stmt: Loop) -> None:
        reach = self.indices.reach(stmt.extent)
        wide = not self.indices.is_narrow(stmt.extent)
        end = self.values.evaluate(stmt.extent)
        name = self.lines.name(stmt.var.name)
        if stmt.kind == "unroll":
            self.lines.line("#pragma unroll")
        head = f"for ({'long long' if wide else 'int'} {name} = 0; {name} < {end}; ++{name})"
        known = reach[1] if reach is not None else None
        with self.lines.block(head), self.indices.symbol(stmt.var, name, known, wide=wide):
            if stmt.kind == "unroll":
                self.indices.unrolled.add(stmt.var)
            self.block(stmt.body)
            self.indices.unrolled.discard(stmt.var)

    def choice(self, condition: Expr, then: Sequence[Stmt], other: Sequence[Stmt]) -> None:
        decided = self.values.evaluate(condition)
        if other:  # `then` may change what the condition reads
            decided = self.values.named(decided, "bool")
        for head, side in ((f"if ({decided})", then), ("else", other)):
            if side:
                with self.lines.block(head):
                    self.block(side)

    def let(self, stmt: Let) -> None:
        is_index = self.indices.is_index(stmt.value)
        reach = self.indices.reach(stmt.value) if is_index else None
        extent = reach[1] + 1 if reach is not None and reach[0] >= 0 else None
        narrow = is_index and self.indices.is_narrow(stmt.value)
        text = self.values.evaluate(stmt.value)
        name = self.lines.name(stmt.var.name)
        if is_index:
            kind = "int" if narrow else "long long"
        else:
            kind = value_type(stmt.value.dtype)
        divisor = self.indices.divisor(affine(stmt.value)) if is_index else 1
        # Behind a scope of its own, so that the name ends where the statement does.
        self.lines.line(f"const {kind} {name} = {text};")
        with self.indices.symbol(stmt.var, name, extent, divisor, wide=not narrow):
            self.block(stmt.body)

    def allocate(self, stmt: Allocate) -> None:
        buffer = stmt.buffer
        if buffer.scope == "fragment":
            thread_statements.allocate_fragment(self, buffer)
        elif buffer.scope != "shared":
            held = self.places.holds_values(buffer)
            kind = value_type(buffer.dtype) if held else memory_type(buffer.dtype)
            name = self.lines.name(buffer.name)
            self.lines.line(f"{kind} {name}[{max(buffer.type.size, 1)}];")
            self.places.bases[buffer] = name
            self.places.own.add(buffer)
        self.block(stmt.body)

    def transpose(self, tile: Buffer) -> None:
        """Exchanges the elements on both sides of the diagonal."""
        rows, base, swap = tile.shape[0], self.places.bases[tile], self.lines.name("swap")
        for i in range(rows):
            for j in range(i):
                a, b = f"{base}[{i * rows + j}]", f"{base}[{j * rows + i}]"
                with self.lines.block(""):
                    self.lines.line(f"const auto {swap} = {a}; {a} = {b}; {b} = {swap};")
