"""Vectors of which only some lanes count (`lane < 7`): memory of the others is left alone."""

from __future__ import annotations

from collections.abc import Mapping

from whet.codegen.llvm.bindings import Bindings
from whet.codegen.llvm.conversion import convert
from whet.codegen.llvm.function import FunctionWriter
from whet.codegen.llvm.memory import MemoryWriter
from whet.codegen.llvm.operand import Operand, literal, llvm_type
from whet.codegen.llvm.storage import Storage
from whet.codegen.llvm.support import require_code
from whet.core.dtypes import bool_, u8
from whet.ir.affine import Affine, substitute
from whet.ir.expr import Binary, Const, Expr, Read, as_expr, const, select
from whet.ir.program import Buffer
from whet.ir.tensor import subexpressions


class MaskWriter(MemoryWriter):
    """Writes loads and stores under masks."""

    def __init__(
        self,
        function: FunctionWriter,
        bindings: Bindings,
        storage: Storage,
        limits: Mapping[Buffer, int] | None,
    ) -> None:
        super().__init__(function, bindings, storage, limits)
        self._runs: dict[tuple[Expr, int], range | None] = {}

    def lanes_where(self, condition: Expr) -> range | None:
        """The lanes of the vector loop around for which a condition on the lane alone holds, if
        they are neighbours."""
        if isinstance(condition, Binary) and condition.op == "and":
            left, right = self.lanes_where(condition.left), self.lanes_where(condition.right)
            if left is None or right is None:
                return None
            return range(max(left.start, right.start), min(left.stop, right.stop))
        if self.lane_var is None or self.bindings.symbols(condition) != {self.lane_var}:
            return None
        key = (condition, self.lanes)
        if key not in self._runs:
            values = [substitute(condition, {self.lane_var: as_expr(n)}) for n in range(self.lanes)]
            known = all(isinstance(v, Const) for v in values)
            chosen = [n for n, v in enumerate(values) if isinstance(v, Const) and v.value]
            run = range(chosen[0], chosen[-1] + 1) if chosen else range(0)
            self._runs[key] = run if known and len(run) == len(chosen) else None
        return self._runs[key]

    def masked_load(self, read: Read, other: Const, run: range) -> Operand | None:
        """Some lanes from neighbouring elements, the others a constant; memory before the first
        one that counts and behind the last is not touched.  None if elements are further than
        two apart, or if not all of these lanes are sure to be inside of the buffer."""
        buffer = read.tensor
        if not isinstance(buffer, Buffer) or buffer.scope == "register" or self.limits is not None:
            return None
        if buffer.dtype is bool_ or not self.are_indices(read.indices):
            return None
        step, rest = self.per_lane(self.bindings.address(buffer, read.indices))
        if rest is None or step not in (1, 2):
            return None
        base, low = rest.constant, rest.constant + step * run.start
        end = rest.constant + step * (run.stop - 1) + 1
        even, pairs = base - base % 2, (low - low % 2, end + end % 2)
        if step == 2 and self.holds(buffer, rest.terms, pairs[0], pairs[1] - pairs[0]):
            # Pairs of vectors from which even and odd elements are picked are read once.
            base, (low, end) = even, pairs
        if self.guarded and not self.holds(buffer, rest.terms, low, end - low):
            return None  # some of these lanes may count only by the condition around
        parts = []
        for part in range(step):
            # Elements that no lane takes are left out, so that they read as the constant.
            at = Affine(rest.terms, base + part * self.lanes)
            inside = range(max(0, low - at.constant), min(self.lanes, end - at.constant))
            parts.append(self.load_some(buffer, at, other, inside))
        if step == 1:
            return parts[0]
        first = rest.constant - base
        picks = ", ".join(f"i32 {first + n * step}" for n in range(self.lanes))
        text = f"shufflevector {parts[0]}, {parts[1]}, <{self.lanes} x i32> <{picks}>"
        return self.f.emit(text, buffer.dtype, self.lanes)

    def load_some(self, buffer: Buffer, at: Affine, other: Const, run: range) -> Operand:
        """Neighbouring elements in some lanes, and a constant in the others."""
        fill = literal(other.value, buffer.dtype, self.lanes)
        if not run:
            return fill
        key = (at.terms, at.constant, self.lanes, run, other)
        known = self.f.scopes[self.here].loads_of(buffer)
        if key in known:
            return known[key]
        vector = llvm_type(buffer.dtype, self.lanes)
        pointer = self.pointer(buffer, at, self.here)
        name = f"llvm.masked.load.{self.f.type_suffix(buffer.dtype, self.lanes)}.p0"
        mask = self.mask(run)
        self.f.module.declare(name, vector, "ptr", "i32", mask.type, vector)
        text = f"ptr {pointer}, i32 {buffer.dtype.itemsize}, {mask}, {fill}"
        known[key] = self.f.emit(f"call {vector} @{name}({text})", buffer.dtype, self.lanes)
        return known[key]

    def store_some(
        self,
        buffer: Buffer,
        indices: tuple[Expr, ...],
        value: Expr,
        condition: Expr,
        run: range,
    ) -> None:
        """A store that takes place in some lanes only, those where the condition holds."""
        require_code(buffer.scope == "memory" and self.are_indices(indices),
                     f"some lanes of {buffer.type} in {buffer.scope}")  # fmt: skip
        stored = self.f.splat(self.evaluate(self.only_where(condition, value)), self.lanes)
        if self.limits is not None:
            for lane in run:
                self.check(buffer, self.in_lane(indices, lane))
        step, rest = self.per_lane(self.bindings.address(buffer, indices))
        if rest is None or step != 1:
            forms = self.address_per_lane(buffer, indices)
            for lane in run:
                self.store_at(buffer, forms[lane], self.f.extract(stored, lane))
            self.forget(buffer)
            return
        if stored.dtype is bool_:  # a byte each in memory
            stored = convert(self.f, stored, u8)
        pointer = self.pointer(buffer, rest, self.here)
        name = f"llvm.masked.store.{self.f.type_suffix(stored.dtype, self.lanes)}.p0"
        mask = self.mask(run)
        self.f.module.declare(name, "void", stored.type, "ptr", "i32", mask.type)
        size = buffer.dtype.itemsize
        self.f.line(f"call void @{name}({stored}, ptr {pointer}, i32 {size}, {mask})")
        self.forget(buffer)

    def only_where(self, condition: Expr, value: Expr) -> Expr:
        """The value in lanes where a condition holds, without memory that only others read.

        x[i + lane] * y[i]   ->   select(lane < 3, x[i + lane], 0) * y[i]
        """
        read = [e for e in subexpressions(value) if isinstance(e, Read) and self.is_vector(e)]
        guarded: dict[Expr, Expr] = {
            e: select(condition, e, const(0, e.dtype))
            for e in read
            if isinstance(e.tensor, Buffer) and e.tensor.scope == "memory"
        }
        return substitute(value, guarded)

    def mask(self, run: range) -> Operand:
        flags = ", ".join(f"i1 {str(n in run).lower()}" for n in range(self.lanes))
        return Operand(f"<{flags}>", bool_, self.lanes)
