"""What the hardware can do at most, measured with code from whet's own code generator.

Each probe is a loop over equal pieces of work, handed to whet's thread pool.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from whet.codegen.llvm.compile import Library, emit_object, host_cpu
from whet.codegen.llvm.poolcode import process_pool
from whet.core.caching import FileCache
from whet.core.config import process_config
from whet.core.target import detect

CHAINS = 12
"""Independent chains of multiply-adds: two units of four cycles need eight, registers hold 14."""
FMA_ITERATIONS = 50_000
PIECES_PER_THREAD = 8
STREAM_PIECE_BYTES = 1 << 20
UNROLL = 8

BANDWIDTH_KINDS = {"read": 1, "copy": 2, "triad": 3, "memcpy": 2}
"""The probes of memory, and how many arrays each one moves."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A call and the floating-point operations or bytes of it."""

    call: Callable[[], None]
    work: float


def fma_probe(threads: int) -> Probe:
    """Multiply-adds in registers, nothing else."""
    lanes = detect().lanes(32)
    pieces = PIECES_PER_THREAD * threads
    sums = np.zeros((pieces, 16), np.float32)
    context = np.array([sums.ctypes.data, 0, 0, FMA_ITERATIONS], np.int64)
    flops = 2.0 * CHAINS * lanes * FMA_ITERATIONS * pieces
    return Probe(_caller(fma_ir(lanes), threads, context, pieces, (sums,)), flops)


def bandwidth_probe(kind: str, nbytes: int, threads: int) -> Probe:
    """Reading, copying or adding arrays of that many bytes each; `memcpy` is the C library's."""
    # The C library chooses its way by the size of each call, so a thread makes one.
    piece = nbytes // threads if kind == "memcpy" else STREAM_PIECE_BYTES
    pieces = nbytes // piece
    arrays = tuple(np.ones(nbytes // 4, np.float32) for _ in range(3))
    context = np.array([*(a.ctypes.data for a in arrays), piece], np.int64)
    call = _caller(stream_ir(kind, detect().lanes(32)), threads, context, pieces, arrays)
    return Probe(call, float(BANDWIDTH_KINDS[kind] * piece * pieces))


def _caller(
    ir: str,
    threads: int,
    context: np.ndarray[tuple[int], np.dtype[np.int64]],
    pieces: int,
    kept: tuple[object, ...],
) -> Callable[[], None]:
    """A call of the module's `run`; keeps what the code points to."""
    pool = process_pool(FileCache(process_config().cache))
    pool.set_threads(threads)
    library = Library([emit_object(ir, *host_cpu())], pool.symbols)
    native = library.function("run", ctypes.c_void_p, ctypes.c_int64)

    def call(keep: object = (library, kept)) -> None:
        native(context.ctypes.data, pieces)

    return call


def fma_ir(lanes: int) -> str:
    """Pieces that each do `iterations` rounds of one multiply-add per chain."""
    vector = f"<{lanes} x float>"
    chains = range(CHAINS)
    state = "\n".join(
        f"  %r{c} = phi {vector} [ splat (float {c}.0), %piece ], [ %n{c}, %loop ]" for c in chains
    )
    steps = "\n".join(
        f"  %n{c} = call {vector} @llvm.fma.v{lanes}f32({vector} %r{c},"
        f" {vector} splat (float 0.5), {vector} splat (float 1.0))"
        for c in chains
    )
    names = [f"%n{c}" for c in chains]
    return _module(
        f"""
  %rounds.slot = getelementptr i64, ptr %context, i64 3
  %rounds = load i64, ptr %rounds.slot
  %sums = load ptr, ptr %context
  br label %loop
loop:
  %i = phi i64 [ 0, %piece ], [ %i.next, %loop ]
{state}
{steps}
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, %rounds
  br i1 %more, label %loop, label %sum
sum:
{_sum(names, vector, "fadd")}
  %slot = getelementptr [16 x float], ptr %sums, i64 %p
  store {vector} %total, ptr %slot, align 4
  br label %done""",
        f"declare {vector} @llvm.fma.v{lanes}f32({vector}, {vector}, {vector})",
    )


def stream_ir(kind: str, lanes: int) -> str:
    """Pieces that each go through `bytes` of the arrays a, b, c."""
    pointers = """
  %b.slot = getelementptr ptr, ptr %context, i64 1
  %c.slot = getelementptr ptr, ptr %context, i64 2
  %bytes.slot = getelementptr i64, ptr %context, i64 3
  %bytes = load i64, ptr %bytes.slot
  %a0 = load ptr, ptr %context
  %b0 = load ptr, ptr %b.slot
  %c0 = load ptr, ptr %c.slot
  %offset = mul i64 %p, %bytes
  %a = getelementptr i8, ptr %a0, i64 %offset
  %b = getelementptr i8, ptr %b0, i64 %offset
  %c = getelementptr i8, ptr %c0, i64 %offset"""
    if kind == "memcpy":
        return _module(
            pointers
            + """
  call void @llvm.memcpy.p0.p0.i64(ptr %c, ptr %a, i64 %bytes, i1 false)
  br label %done""",
            "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)",
        )
    vector, step = f"<{lanes} x float>", lanes * 4
    phis, body = [], []
    for u in range(UNROLL):
        body += [
            f"  %o{u} = add i64 %i, {u * step}",
            f"  %pa{u} = getelementptr i8, ptr %a, i64 %o{u}",
            f"  %va{u} = load {vector}, ptr %pa{u}, align 4",
        ]
        if kind == "read":
            phis.append(f"  %r{u} = phi {vector} [ zeroinitializer, %piece ], [ %n{u}, %loop ]")
            body.append(f"  %n{u} = fadd {vector} %r{u}, %va{u}")
            continue
        if kind == "triad":
            body += [
                f"  %pb{u} = getelementptr i8, ptr %b, i64 %o{u}",
                f"  %vb{u} = load {vector}, ptr %pb{u}, align 4",
                f"  %vt{u} = fmul {vector} %vb{u}, splat (float 3.0)",
                f"  %vs{u} = fadd {vector} %va{u}, %vt{u}",
            ]
        stored = f"%vs{u}" if kind == "triad" else f"%va{u}"
        body += [
            f"  %pc{u} = getelementptr i8, ptr %c, i64 %o{u}",
            f"  store {vector} {stored}, ptr %pc{u}, align 4",
        ]
    after = "  br label %done"
    if kind == "read":
        total = _sum([f"%n{u}" for u in range(UNROLL)], vector, "fadd")
        after = f"{total}\n  store {vector} %total, ptr %c, align 4\n  br label %done"
    lines = "\n".join([*phis, *body])
    return _module(f"""{pointers}
  br label %loop
loop:
  %i = phi i64 [ 0, %piece ], [ %i.next, %loop ]
{lines}
  %i.next = add i64 %i, {UNROLL * step}
  %more = icmp ult i64 %i.next, %bytes
  br i1 %more, label %loop, label %sum
sum:
{after}""")


def _sum(names: list[str], vector: str, operation: str) -> str:
    """Instructions that combine the values into %total."""
    lines = []
    total = names[0]
    for n, name in enumerate(names[1:]):
        result = "%total" if n == len(names) - 2 else f"%t{n}"
        lines.append(f"  {result} = {operation} {vector} {total}, {name}")
        total = result
    return "\n".join(lines)


def _module(piece: str, declarations: str = "") -> str:
    """A module whose `run(context, n)` does n pieces; `piece` does number %p, then %done."""
    return f"""
declare void @whet_parallel(ptr, ptr, i64)
{declarations}

define internal void @body(ptr %context, i64 %begin, i64 %end) nounwind {{
entry:
  br label %piece
piece:
  %p = phi i64 [ %begin, %entry ], [ %p.next, %done ]
{piece.strip(chr(10))}
done:
  %p.next = add i64 %p, 1
  %p.more = icmp ult i64 %p.next, %end
  br i1 %p.more, label %piece, label %out
out:
  ret void
}}

define void @run(ptr %context, i64 %n) nounwind {{
  call void @whet_parallel(ptr @body, ptr %context, i64 %n)
  ret void
}}
"""
