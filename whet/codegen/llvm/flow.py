"""Control flow as native code: loops and branches around the kernels of bodies.

A body is a routine `void @bodyN(ptr table, ptr arrays)`, which runs its kernels on arrays that
are listed for it, inputs before outputs.  A flow is a routine `void @flowN(ptr table)`, which
finds the memory that it shares with the rest of the model through a row of the table of
addresses, and calls bodies with lists of arrays inside that memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from whet.tasks.flow import Address, Choose, Flow, Piece, Repeat, State, While

CHUNK = 32
"""Bytes that are copied at a time."""


def flow_ir(flow: Flow, name: str, start: int, bodies: Sequence[str]) -> str:
    """`void @NAME(ptr table)`; its parameters stand in the table from position `start` on."""
    code = _Code(start)
    match flow:
        case Repeat():
            _repeat(code, flow, bodies[0])
        case While():
            _while(code, flow, bodies[0])
        case Choose():
            _choose(code, flow, bodies)
    return "\n".join(
        [f"define internal void @{name}(ptr %table) nounwind {{", "entry:", *code.lines, "}", ""]
    )


class _Code:
    """Text IR under construction."""

    def __init__(self, start: int) -> None:
        self.start, self.count = start, 0
        self.lines: list[str] = []

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")

    def do(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def let(self, text: str) -> str:
        """The name of a new value."""
        self.count += 1
        self.do(f"%v{self.count} = {text}")
        return f"%v{self.count}"

    def list_of(self, arrays: int) -> str:
        """A list of arrays for a body, on the stack."""
        return self.let(f"alloca [{max(arrays, 1)} x ptr], align 8")

    def put(self, array: int, where: str, pointer: str) -> None:
        at = self.let(f"getelementptr ptr, ptr {where}, i64 {array}")
        self.do(f"store ptr {pointer}, ptr {at}, align 8")

    def pointer(self, address: Address) -> str:
        at = self.let(f"getelementptr ptr, ptr %table, i64 {self.start + address.parameter}")
        base = self.let(f"load ptr, ptr {at}, align 8")
        return self.moved(base, str(address.offset)) if address.offset else base

    def moved(self, pointer: str, nbytes: str) -> str:
        return self.let(f"getelementptr i8, ptr {pointer}, i64 {nbytes}")

    def choice(self, condition: str, yes: str, no: str) -> str:
        return self.let(f"select i1 {condition}, ptr {yes}, ptr {no}")

    def truth(self, pointer: str) -> str:
        byte = self.let(f"load i8, ptr {pointer}, align 1")
        return self.let(f"icmp ne i8 {byte}, 0")

    def copy(self, source: str, target: str, nbytes: int, name: str) -> None:
        """Bytes from one place to another, in a block of its own that ends in `NAME.end`."""
        whole = nbytes // CHUNK * CHUNK
        if whole:
            self.do(f"br label %{name}")
            self.label(name)
            at = f"%{name}.at"
            self.do(f"{at} = phi i64 [ 0, %{name}.from ], [ {at}.next, %{name} ]")
            self._move(source, target, at, f"<{CHUNK // 8} x i64>")
            self.do(f"{at}.next = add i64 {at}, {CHUNK}")
            more = self.let(f"icmp ult i64 {at}.next, {whole}")
            self.do(f"br i1 {more}, label %{name}, label %{name}.end")
        else:
            self.do(f"br label %{name}.end")
        self.label(f"{name}.end")
        for byte in range(whole, nbytes):
            self._move(source, target, str(byte), "i8")

    def _move(self, source: str, target: str, at: str, kind: str) -> None:
        value = self.let(f"load {kind}, ptr {self.moved(source, at)}, align 1")
        self.do(f"store {kind} {value}, ptr {self.moved(target, at)}, align 1")


def _arrays(states: Sequence[State], pieces: Sequence[Piece], *others: int) -> int:
    numbers = [*others, *(p.array for p in pieces)]
    numbers += [n for s in states for n in (s.taken, s.given)]
    return max(numbers, default=-1) + 1


def _repeat(code: _Code, flow: Repeat, body: str) -> None:
    """In round t, states are read where round t - 1 wrote them, and written to the other place."""
    arrays = code.list_of(_arrays(flow.states, flow.pieces))
    places = [
        [code.pointer(a) for a in (s.initial, s.final, *s.turns)] for s in flow.states
    ]  # fmt: skip
    bases = {piece: code.pointer(piece.base) for piece in flow.pieces}
    for piece in flow.pieces:
        if not piece.stride:
            code.put(piece.array, arrays, bases[piece])
    code.do("br label %round")
    code.label("round")
    code.do("%t = phi i64 [ 0, %entry ], [ %next, %round ]")
    code.do("%next = add i64 %t, 1")
    code.do(f"%back = sub i64 {flow.rounds - 1}, %t")
    first, last = code.let("icmp eq i64 %t, 0"), code.let("icmp eq i64 %back, 0")
    odd = code.let("trunc i64 %t to i1")
    for state, (initial, final, even_turn, odd_turn) in zip(flow.states, places):
        before = code.choice(odd, even_turn, odd_turn)
        code.put(state.taken, arrays, code.choice(first, initial, before))
        now = code.choice(odd, odd_turn, even_turn)
        code.put(state.given, arrays, code.choice(last, final, now))
    for piece in flow.pieces:
        if piece.stride:
            number = "%back" if piece.backward else "%t"
            nbytes = code.let(f"mul i64 {number}, {piece.stride}")
            code.put(piece.array, arrays, code.moved(bases[piece], nbytes))
    code.do(f"call void @{body}(ptr %table, ptr {arrays})")
    more = code.let(f"icmp ult i64 %next, {flow.rounds}")
    code.do(f"br i1 {more}, label %round, label %done")
    code.label("done")
    code.do("ret void")


def _while(code: _Code, flow: While, body: str) -> None:
    """As above, but which round is the last is known only after it: its states are copied."""
    arrays = code.list_of(_arrays(flow.states, flow.pieces, flow.flag))
    places = [
        [code.pointer(a) for a in (s.initial, s.final, *s.turns)] for s in flow.states
    ]  # fmt: skip
    flag, status = code.pointer(flow.next_going), code.pointer(flow.status)
    code.put(flow.flag, arrays, flag)
    for piece in flow.pieces:
        code.put(piece.array, arrays, code.pointer(piece.base))
    starts = code.truth(code.pointer(flow.going))
    code.do("br label %head")
    code.label("head")
    code.do("%odd = phi i1 [ false, %entry ], [ %even, %round ]")
    code.do(f"%goes = phi i1 [ {starts}, %entry ], [ %onward, %round ]")
    for n, (initial, *_) in enumerate(places):
        code.do(f"%now{n} = phi ptr [ {initial}, %entry ], [ %new{n}, %round ]")
    code.do("%even = xor i1 %odd, true")
    code.do("br i1 %goes, label %round, label %done")
    code.label("round")
    for n, (state, (_, _, even_turn, odd_turn)) in enumerate(zip(flow.states, places)):
        code.put(state.taken, arrays, f"%now{n}")
        code.do(f"%new{n} = select i1 %odd, ptr {odd_turn}, ptr {even_turn}")
        code.put(state.given, arrays, f"%new{n}")
    code.do(f"call void @{body}(ptr %table, ptr {arrays})")
    onward = code.truth(flag)
    problem = code.let(f"load i64, ptr {status}, align 8")
    sound = code.let(f"icmp eq i64 {problem}, 0")
    code.do(f"%onward = and i1 {onward}, {sound}")
    code.do("br label %head")
    code.label("done")
    for n, (state, (_, final, *_)) in enumerate(zip(flow.states, places)):
        code.do(f"br label %copy{n}.from")
        code.label(f"copy{n}.from")
        code.copy(f"%now{n}", final, state.nbytes, f"copy{n}")
    code.do("ret void")


def _choose(code: _Code, flow: Choose, bodies: Sequence[str]) -> None:
    lists = [code.list_of(_arrays((), pieces)) for pieces in flow.pieces]
    holds = code.truth(code.pointer(flow.condition))
    code.do(f"br i1 {holds}, label %body0, label %body1")
    for n, (body, pieces, arrays) in enumerate(zip(bodies, flow.pieces, lists, strict=True)):
        code.label(f"body{n}")
        for piece in pieces:
            code.put(piece.array, arrays, code.pointer(piece.base))
        code.do(f"call void @{body}(ptr %table, ptr {arrays})")
        code.do("ret void")
