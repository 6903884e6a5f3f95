"""A function under construction: nested scopes of straight-line text.

Each loop body is a scope of its own.  While a body is written, instructions that do not depend
on its loop variable go to the scope where their operands live, which is still open and will
precede the loop's text.  This does the work of loop-invariant code motion, of which the
pass list used here has none.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from whet.codegen.llvm.module import Module
from whet.codegen.llvm.operand import HALVES, Operand, llvm_type
from whet.core.dtypes import DType, bool_


@dataclass(slots=True)
class Scope:
    """Instructions of one loop body (or the function's), with values already computed there."""

    entry: str
    """Label under which the text starts."""
    block: str = ""
    """Label of the block that the text has reached."""
    lines: list[str] = field(default_factory=list)
    known: dict[Hashable, Operand] = field(default_factory=dict)
    loads: dict[Hashable, dict[Hashable, Operand]] = field(default_factory=dict)
    """Elements that have been read, for every buffer."""
    conditional: bool = False
    """True for the body of an if: memory must not be read ahead of it."""

    def __post_init__(self) -> None:
        self.block = self.entry

    def loads_of(self, buffer: Hashable) -> dict[Hashable, Operand]:
        return self.loads.setdefault(buffer, {})


class FunctionWriter:
    """Writes one function."""

    def __init__(self, module: Module, name: str, params: str) -> None:
        self.module, self.name, self.params = module, name, params
        self.allocas: list[str] = []
        self.scopes = [Scope("start")]
        self.count = 0

    # ------------------------------------------------------------------------ instructions
    def fresh(self, hint: str = "v") -> str:
        """A name that no other value has."""
        self.count += 1
        # A hint may end in a digit: the 13th name for j1 is not the 113th for j.
        return f"%{hint}_{self.count}" if hint[-1].isdigit() else f"%{hint}{self.count}"

    def line(self, text: str, level: int = -1) -> None:
        self.scopes[level].lines.append("  " + text)

    def emit(self, instruction: str, dtype: DType, lanes: int = 0, level: int = -1) -> Operand:
        """Write `%v = instruction` and return %v."""
        name = self.fresh()
        self.line(f"{name} = {instruction}", level)
        return Operand(name, dtype, lanes)

    def once(
        self, key: Hashable, instruction: str, dtype: DType, lanes: int, level: int
    ) -> Operand:
        """The value of a pure instruction, written only once per scope."""
        known = self.scopes[level].known
        if key not in known:
            known[key] = self.emit(instruction, dtype, lanes, level)
        return known[key]

    def call(
        self, function: str, dtype: DType, lanes: int, *args: Operand, flags: str = ""
    ) -> Operand:
        """A call of an external function or intrinsic, declared on the way."""
        self.module.declare(function, llvm_type(dtype, lanes), *(a.type for a in args))
        words = f"call {flags} " if flags else "call "
        text = f"{words}{llvm_type(dtype, lanes)} @{function}({', '.join(map(str, args))})"
        return self.emit(text, dtype, lanes)

    def intrinsic(self, name: str, *args: Operand, flags: str = "") -> Operand:
        """`llvm.NAME.vNfM` on operands of one type."""
        first = args[0]
        suffix = self.type_suffix(first.dtype, first.lanes)
        return self.call(f"llvm.{name}.{suffix}", first.dtype, first.lanes, *args, flags=flags)

    @staticmethod
    def type_suffix(dtype: DType, lanes: int) -> str:
        """How the name of an intrinsic says its type: f32, v8f32, v4i64."""
        bits = f"{'f' if dtype.is_float and dtype not in HALVES else 'i'}{dtype.bits}"
        return f"v{lanes}{bits}" if lanes else bits

    def binary(self, opcode: str, a: Operand, b: Operand) -> Operand:
        a, b = self.match_lanes(a, b)
        return self.emit(f"{opcode} {a}, {b.text}", a.dtype, a.lanes)

    def compare(self, predicate: str, a: Operand, b: Operand) -> Operand:
        a, b = self.match_lanes(a, b)
        opcode = "fcmp" if a.dtype.is_float else "icmp"
        return self.emit(f"{opcode} {predicate} {a}, {b.text}", bool_, a.lanes)

    def choose(self, condition: Operand, a: Operand, b: Operand) -> Operand:
        a, b = self.match_lanes(a, b)
        if condition.lanes:
            a, b = self.splat(a, condition.lanes), self.splat(b, condition.lanes)
        return self.emit(f"select {condition}, {a}, {b}", a.dtype, a.lanes)

    # ------------------------------------------------------------------------------- lanes
    def match_lanes(self, a: Operand, b: Operand) -> tuple[Operand, Operand]:
        lanes = max(a.lanes, b.lanes)
        return self.splat(a, lanes), self.splat(b, lanes)

    def splat(self, a: Operand, lanes: int) -> Operand:
        """The scalar in every lane (vectors pass through)."""
        if a.lanes or not lanes:
            return a
        if not a.text.startswith("%"):
            return Operand(f"splat ({a.type} {a.text})", a.dtype, lanes)
        vector = llvm_type(a.dtype, lanes)
        key = ("splat", a.text, lanes)
        for scope in self.scopes:
            if key in scope.known:
                return scope.known[key]
        one = self.emit(f"insertelement {vector} poison, {a}, i64 0", a.dtype, lanes)
        made = self.emit(
            f"shufflevector {one}, {vector} poison, <{lanes} x i32> zeroinitializer",
            a.dtype,
            lanes,
        )
        self.scopes[-1].known[key] = made
        return made

    def extract(self, a: Operand, lane: int) -> Operand:
        return self.emit(f"extractelement {a}, i64 {lane}", a.dtype) if a.lanes else a

    def pack(self, scalars: list[Operand]) -> Operand:
        """A vector from one scalar per lane."""
        lanes = len(scalars)
        vector = Operand("poison", scalars[0].dtype, lanes)
        for lane, scalar in enumerate(scalars):
            vector = self.emit(f"insertelement {vector}, {scalar}, i64 {lane}", scalar.dtype, lanes)
        return vector

    # ------------------------------------------------------------------------ control flow
    def open_loop(self) -> None:
        """Start a loop body."""
        self.scopes.append(Scope(f"loop{self._label()}"))

    def close_loop(self, var: str, begin: str, end: str) -> None:
        """Finish the body opened last: it runs for begin <= var < end, at least once."""
        body = self.scopes.pop()
        outer = self.scopes[-1]
        top, done = body.entry, f"done{self._label()}"
        outer.lines += [
            f"  br label %{top}",
            f"{top}:",
            f"  {var} = phi i64 [ {begin}, %{outer.block} ], [ {var}.next, %{body.block} ]",
            *body.lines,
            f"  {var}.next = add nuw nsw i64 {var}, 1",
            f"  {var}.more = icmp ult i64 {var}.next, {end}",
            f"  br i1 {var}.more, label %{top}, label %{done}",
            f"{done}:",
        ]
        outer.block = done

    def open_branch(self) -> None:
        """Start a body that runs under a condition."""
        self.scopes.append(Scope(f"then{self._label()}", conditional=True))

    def close_branch(self, condition: Operand) -> None:
        """Finish the conditional body opened last."""
        body = self.scopes.pop()
        outer = self.scopes[-1]
        top, after = body.entry, f"after{self._label()}"
        outer.lines += [
            f"  br i1 {condition.text}, label %{top}, label %{after}",
            f"{top}:",
            *body.lines,
            f"  br label %{after}",
            f"{after}:",
        ]
        outer.block = after

    def open_while(self) -> None:
        """Start the condition of a loop that runs as long as it holds."""
        self.scopes.append(Scope(f"test{self._label()}", conditional=True))

    def close_while(self, condition: Operand) -> None:
        """Finish a body that was opened as a branch inside the condition's scope."""
        body, test, outer = self.scopes.pop(), self.scopes.pop(), self.scopes[-1]
        done = f"done{self._label()}"
        outer.lines += [
            f"  br label %{test.entry}",
            f"{test.entry}:",
            *test.lines,
            f"  br i1 {condition.text}, label %{body.entry}, label %{done}",
            f"{body.entry}:",
            *body.lines,
            f"  br label %{test.entry}",
            f"{done}:",
        ]
        outer.block = done

    def _label(self) -> int:
        self.count += 1
        return self.count

    # ------------------------------------------------------------------------------ result
    def finish(self) -> None:
        """Add the function to the module."""
        assert len(self.scopes) == 1
        lines = [
            f"define void @{self.name}({self.params}) nounwind {{",
            "start:",
            *("  " + a for a in self.allocas),
            *self.scopes[0].lines,
            "  ret void",
            "}",
        ]
        self.module.functions.append("\n".join(lines))
