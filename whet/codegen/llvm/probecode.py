"""Probes of the hardware as text IR: loops that do one thing as fast as the machine can.

Every module defines `run(context, n)`, which does n equal pieces of work on the threads that
`whet_parallel` stands for.  The context is the addresses of three arrays and two numbers:

    multiply-adds    results, -, -, rounds of a piece, -
    chain            results, -, -, rounds of a piece, -
    streams          a, b, c, bytes of a piece, bytes from one piece to the next
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

CHAINS = 12
"""Independent chains of multiply-adds: two units of four cycles need eight, registers hold 14."""
CHAIN_STEPS = 16
"""Operations of a round of the chain, all of them dependent."""
UNROLL = 8
STREAMS: Mapping[str, int] = {"read": 1, "copy": 2, "triad": 3, "memcpy": 2}
"""The streams, and how many arrays each one moves."""
RESULT_LANES = 16
"""Room for the result of one piece, in elements of 4 bytes."""


def fma_ir(lanes: int, chains: int = CHAINS) -> str:
    """Rounds of one multiply-add per chain, in registers."""
    vector = f"<{lanes} x float>"
    numbers = range(chains)
    state = [
        f"%r{c} = phi {vector} [ splat (float {c}.0), %piece ], [ %n{c}, %loop ]" for c in numbers
    ]
    steps = [
        f"%n{c} = call {vector} @llvm.fmuladd.v{lanes}f32({vector} %r{c},"
        f" {vector} splat (float 0.5), {vector} splat (float 1.0))"
        for c in numbers
    ]
    return _rounds(
        [*state, *steps],
        [f"%n{c}" for c in numbers],
        vector,
        "fadd",
        f"declare {vector} @llvm.fmuladd.v{lanes}f32({vector}, {vector}, {vector})",
    )


def chain_ir() -> str:
    """Rounds of dependent operations on integers, one per cycle."""
    state = f"%s0 = phi i64 [ %rounds, %piece ], [ %s{CHAIN_STEPS}, %loop ]"
    # Alternating, so that no two of them can be folded into one.
    steps = [f"%s{n + 1} = {('add', 'xor')[n % 2]} i64 %s{n}, %rounds" for n in range(CHAIN_STEPS)]
    return _rounds([state, *steps], [f"%s{CHAIN_STEPS}"], "i64", "add")


def broadcast_ir(lanes: int) -> str:
    """Pieces that load every number of `a` into all lanes of a vector."""
    vector = f"<{lanes} x i32>"
    lines = [f"%r{u} = phi {vector} [ zeroinitializer, %piece ], [ %n{u}, %loop ]"
             for u in range(UNROLL)]  # fmt: skip
    for u in range(UNROLL):
        lines += [
            *_address("a", u, 4),
            f"%va{u} = load i32, ptr %pa{u}, align 4",
            f"%one{u} = insertelement {vector} poison, i32 %va{u}, i64 0",
            f"%all{u} = shufflevector {vector} %one{u}, {vector} poison, "
            f"<{lanes} x i32> zeroinitializer",
            f"%n{u} = xor {vector} %r{u}, %all{u}",
        ]
    return _stream(lines, UNROLL * 4, [f"%n{u}" for u in range(UNROLL)], vector, "xor")


def stream_ir(kind: str, lanes: int) -> str:
    """Pieces of a stream: `read` a, `copy` a to c, `triad` c = a + 3 b, or C's `memcpy`."""
    if kind == "memcpy":
        return _module(
            [
                *_POINTERS,
                "call void @llvm.memcpy.p0.p0.i64(ptr %c, ptr %a, i64 %bytes, i1 false)",
                "br label %done",
            ],
            "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)",
        )
    vector, step = f"<{lanes} x float>", lanes * 4
    phis, body = [], []
    for u in range(UNROLL):
        body += [*_address("a", u, step), f"%va{u} = load {vector}, ptr %pa{u}, align 4"]
        if kind == "read":
            phis.append(f"%r{u} = phi {vector} [ zeroinitializer, %piece ], [ %n{u}, %loop ]")
            body.append(f"%n{u} = fadd {vector} %r{u}, %va{u}")
            continue
        if kind == "triad":
            body += [
                *_address("b", u, step),
                f"%vb{u} = load {vector}, ptr %pb{u}, align 4",
                f"%vt{u} = fmul {vector} %vb{u}, splat (float 3.0)",
                f"%vs{u} = fadd {vector} %va{u}, %vt{u}",
            ]
        stored = f"%vs{u}" if kind == "triad" else f"%va{u}"
        body += [*_address("c", u, step), f"store {vector} {stored}, ptr %pc{u}, align 4"]
    sums = [f"%n{u}" for u in range(UNROLL)] if kind == "read" else []
    return _stream([*phis, *body], UNROLL * step, sums, vector, "fadd")


_POINTERS = (
    "%b.slot = getelementptr ptr, ptr %context, i64 1",
    "%c.slot = getelementptr ptr, ptr %context, i64 2",
    "%bytes.slot = getelementptr i64, ptr %context, i64 3",
    "%step.slot = getelementptr i64, ptr %context, i64 4",
    "%bytes = load i64, ptr %bytes.slot",
    "%step = load i64, ptr %step.slot",
    "%a0 = load ptr, ptr %context",
    "%b0 = load ptr, ptr %b.slot",
    "%c0 = load ptr, ptr %c.slot",
    "%offset = mul i64 %p, %step",
    "%a = getelementptr i8, ptr %a0, i64 %offset",
    "%b = getelementptr i8, ptr %b0, i64 %offset",
    "%c = getelementptr i8, ptr %c0, i64 %offset",
)


def _address(array: str, number: int, step: int) -> list[str]:
    return [
        f"%o{array}{number} = add i64 %i, {number * step}",
        f"%p{array}{number} = getelementptr i8, ptr %{array}, i64 %o{array}{number}",
    ]


def _stream(
    body: Sequence[str], step: int, sums: Sequence[str], vector: str, operation: str
) -> str:
    """Pieces whose loop goes through `bytes`; what is summed up is stored at the start of c."""
    after = [*_sum(sums, vector, operation), f"store {vector} %total, ptr %c, align 4"]
    return _module(
        [
            *_POINTERS,
            *_loop(body, step, "%bytes"),
            *(after if sums else []),
            "br label %done",
        ]
    )


def _rounds(
    body: Sequence[str], sums: Sequence[str], vector: str, operation: str, declarations: str = ""
) -> str:
    """Pieces of so many rounds; each stores what it sums up."""
    return _module(
        [
            "%rounds.slot = getelementptr i64, ptr %context, i64 3",
            "%rounds = load i64, ptr %rounds.slot",
            "%results = load ptr, ptr %context",
            *_loop(body, 1, "%rounds"),
            *_sum(sums, vector, operation),
            f"%slot = getelementptr [{RESULT_LANES} x float], ptr %results, i64 %p",
            f"store {vector} %total, ptr %slot, align 4",
            "br label %done",
        ],
        declarations,
    )


def _loop(body: Sequence[str], step: int, end: str) -> list[str]:
    """The lines of a loop with counter %i in a piece, and the label of what comes after."""
    return [
        "br label %loop",
        "loop:",
        "%i = phi i64 [ 0, %piece ], [ %i.next, %loop ]",
        *body,
        f"%i.next = add i64 %i, {step}",
        f"%more = icmp ult i64 %i.next, {end}",
        "br i1 %more, label %loop, label %after",
        "after:",
    ]


def _sum(names: Sequence[str], vector: str, operation: str) -> Iterator[str]:
    """Instructions that combine the values into %total."""
    total = names[0] if names else ""
    for n, name in enumerate(names[1:]):
        yield f"%t{n} = {operation} {vector} {total}, {name}"
        total = f"%t{n}"
    if names:
        yield f"%total = bitcast {vector} {total} to {vector}"


def _module(piece: Sequence[str], declarations: str = "") -> str:
    """A module whose `run(context, n)` does n pieces; `piece` does number %p, then %done."""
    lines = "\n".join(line if line.endswith(":") else f"  {line}" for line in piece)
    return f"""
declare void @whet_parallel(ptr, ptr, i64)
{declarations}

define internal void @body(ptr %context, i64 %begin, i64 %end) nounwind {{
entry:
  br label %piece
piece:
  %p = phi i64 [ %begin, %entry ], [ %p.next, %done ]
{lines}
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
