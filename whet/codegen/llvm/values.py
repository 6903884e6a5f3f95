"""Expressions to instructions: loads, stores, arithmetic.

Inside a vector loop an expression that depends on the loop's variable becomes a vector.  A
read whose address moves by one element per lane is a vector load, by none a scalar load that
is broadcast, and anything else is gathered lane by lane.  Where only some lanes count
(`lane < 7`), memory is read and written under a mask and the others are left alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from whet.codegen.llvm import checking, conversion, mathlib
from whet.codegen.llvm.function import FunctionWriter
from whet.codegen.llvm.indexing import IndexWriter
from whet.codegen.llvm.operand import Operand, literal, llvm_type, memory_type
from whet.codegen.llvm.storage import Storage
from whet.codegen.llvm.support import no_code, require_code
from whet.core.dtypes import bool_, compute_dtype, f32, i64
from whet.core.errors import check
from whet.ir.affine import Affine, affine, interval, substitute
from whet.ir.expr import (
    Axis,
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Read,
    Reduce,
    Reinterpret,
    Select,
    as_expr,
    cast,
)
from whet.ir.program import Buffer

_INT_OPCODES = {"add": "add", "sub": "sub", "mul": "mul"}
_FLOAT_OPCODES = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_COMPARES = frozenset({"lt", "le", "gt", "ge", "eq", "ne"})


class ValueWriter(IndexWriter):
    """Writes the values of expressions and what statements do with them."""

    def __init__(
        self, function: FunctionWriter, storage: Storage, limits: Mapping[Buffer, int] | None
    ) -> None:
        super().__init__(function, storage)
        self.limits = limits
        self.guarded = False
        self.streams = False
        """Whether a store went past the caches."""
        self.memo: dict[tuple[Expr, bool], Operand] = {}
        self.runs: dict[tuple[Expr, int], range | None] = {}

    def evaluate(self, e: Expr) -> Operand:
        """The value of an expression of a new statement: memory may have changed."""
        self.memo = {}
        return self.value(e)

    # ------------------------------------------------------------------------------ memory
    def load(self, buffer: Buffer, indices: Sequence[Expr]) -> Operand:
        if buffer.scope == "register":
            return self.load_register(buffer, indices)
        if buffer.type.size == 0:
            return literal(0, buffer.dtype)  # only ever read under a condition that fails
        if not self.guarded:
            self.report_outside(buffer, indices)
        indices = self.clamp(buffer, indices, self.guarded)
        if self.limits is not None:
            self.check(buffer, indices)
        form = self.address_form(buffer, indices)
        if self.lane_var is None or not any(self.is_vector(a) for a, _ in form.terms):
            return self.load_at(buffer, form, 0)
        step, rest = self.per_lane(form)
        if rest is None:
            lanes = range(self.lanes)
            forms = [self.address_form(buffer, self.in_lane(indices, n)) for n in lanes]
            return self.gather(buffer, forms)
        if step != 1:
            forms = [Affine(rest.terms, rest.constant + step * n) for n in range(self.lanes)]
            return self.gather(buffer, forms)
        return self.load_at(buffer, rest, self.lanes)

    def gather(self, buffer: Buffer, forms: Sequence[Affine]) -> Operand:
        """Elements at several addresses as one vector.

        Addresses that differ by constants within a short reach are read as two vectors and
        shuffled into place (every second element, members of a group, backwards); anything
        else is read lane by lane.
        """
        lanes, constants = len(forms), [form.constant for form in forms]
        low, high = min(constants), max(constants)
        near = all(form.terms == forms[0].terms for form in forms) and high - low < 2 * lanes
        if not near or lanes == 1 or buffer.dtype is bool_:
            return self.f.pack([self.load_at(buffer, form, 0) for form in forms])
        if low == high:
            return self.f.splat(self.load_at(buffer, forms[0], 0), lanes)
        size = min(high - low + 1, lanes)
        even = low - low % 2
        pair = lanes < high - low and high < even + 2 * lanes
        if pair and self.holds(buffer, forms[0].terms, even, 2 * lanes):
            # Pairs of vectors from which even and odd elements are picked are read once.
            low, high = even, even + 2 * lanes - 1
        first = self.load_at(buffer, Affine(forms[0].terms, low), size)
        # The second read ends at the last element that is wanted, never behind it.
        begin = high - size + 1
        second = self.load_at(buffer, Affine(forms[0].terms, begin), size)
        picks = [c - low if c - low < size else c - begin + size for c in constants]
        mask = ", ".join(f"i32 {n}" for n in picks)
        text = f"shufflevector {first}, {second}, <{lanes} x i32> <{mask}>"
        return self.f.emit(text, buffer.dtype, lanes)

    def holds(
        self, buffer: Buffer, terms: tuple[tuple[Expr, int], ...], start: int, size: int
    ) -> bool:
        """True when so many elements from an address on are surely inside of the buffer."""
        if buffer.shape != (buffer.type.size,) or buffer.offset:
            return False
        bounds = interval(Affine(terms, start).expr(), self.extents)
        return bounds is not None and bounds[0] >= 0 and bounds[1] + size <= buffer.shape[0]

    def report_outside(self, buffer: Buffer, indices: Sequence[Expr]) -> None:
        """Tell the caller when an index that comes from memory is outside the buffer."""
        for index, extent in zip(indices, buffer.shape):
            if self.is_index(index):
                continue
            bounds = interval(index, self.extents)
            if bounds is not None and bounds[0] >= 0 and bounds[1] < extent:
                continue
            # As an unsigned number a negative index is far outside.
            outside = self.f.compare("uge", self.value(index), literal(extent, i64))
            if outside.lanes:
                name = f"llvm.vector.reduce.or.v{outside.lanes}i1"
                outside = self.f.call(name, bool_, 0, outside)
            self.f.open_branch()
            self.storage.report()
            self.f.close_branch(outside)

    def check(self, buffer: Buffer, indices: Sequence[Expr]) -> None:
        """Checks of an access in every lane."""
        assert self.limits is not None
        shape = (self.limits[buffer],) if buffer in self.limits else buffer.shape
        lanes = range(self.lanes) if self.is_vector_index(indices) else None
        for at in [indices] if lanes is None else [self.in_lane(indices, n) for n in lanes]:
            checking.check_access(self.f, buffer.name, shape, [self.value(i) for i in at])

    def per_lane(self, form: Affine) -> tuple[int, Affine | None]:
        """How far an address moves per lane, and the rest of it (None if it is not linear)."""
        assert self.lane_var is not None
        rest = Affine(tuple(t for t in form.terms if t[0] is not self.lane_var), form.constant)
        if any(self.is_vector(a) for a, _ in rest.terms):
            return 0, None
        return form.coefficient(self.lane_var), rest

    def in_lane(self, indices: Sequence[Expr], lane: int) -> list[Expr]:
        assert self.lane_var is not None
        return [substitute(i, {self.lane_var: as_expr(lane)}) for i in indices]

    def load_at(self, buffer: Buffer, form: Affine, lanes: int) -> Operand:
        """A load, shared within its scope; read-only memory is read as far out as possible."""
        level = self.here
        fixed = self.is_fixed(form) and self.limits is None  # nothing is read ahead of its check
        if fixed and buffer in self.storage.frozen:
            # Memory may be read ahead of loops, but not ahead of a condition.
            walls = [n for n, s in enumerate(self.f.scopes) if s.conditional]
            inner = max((self.level(a) for a, _ in form.terms), default=0)
            level = max([inner, *walls])
        key = ("load", buffer, form, lanes)
        if fixed:
            for scope in self.f.scopes[level:]:
                if key in scope.known:
                    return scope.known[key]
        pointer = self.pointer(buffer, form, level)
        kind = memory_type(buffer.dtype, lanes)
        text = f"load {kind}, ptr {pointer}, align {buffer.dtype.itemsize}"
        if buffer.dtype is bool_:
            raw = self.f.fresh()
            self.f.line(f"{raw} = {text}", level)
            text = f"trunc {kind} {raw} to {llvm_type(bool_, lanes)}"
        made = self.f.emit(text, buffer.dtype, lanes, level)
        if fixed:
            self.f.scopes[level].known[key] = made
        return made

    def store(
        self, buffer: Buffer, indices: Sequence[Expr], value: Expr, *, stream: bool = False
    ) -> None:
        stored = self.evaluate(value)
        if buffer.scope == "register":
            lanes = self.lanes if self.is_vector_index(indices) else 0
            slot = self.storage.register(buffer, self.fixed(buffer, indices), lanes)
            stored = self.f.splat(stored, lanes)
            self.f.line(f"store {stored}, ptr {slot}")
            return
        if buffer.type.size == 0:
            return
        self.report_outside(buffer, indices)
        indices = self.clamp(buffer, indices, guarded=False)
        if self.limits is not None:
            self.check(buffer, indices)
        form = self.address_form(buffer, indices)
        if self.lane_var is None or not any(self.is_vector(a) for a, _ in form.terms):
            self.store_at(buffer, form, stored)
        else:
            stored = self.f.splat(stored, self.lanes)
            step, rest = self.per_lane(form)
            if rest is not None and step == 1 and stream and buffer.dtype is not bool_:
                self.stream_at(buffer, rest, stored)
            elif rest is not None and step == 1:
                self.store_at(buffer, rest, stored)
            else:
                for n in range(self.lanes):
                    lane = self.address_form(buffer, self.in_lane(indices, n))
                    self.store_at(buffer, lane, self.f.extract(stored, n))
        self.forget(buffer)

    def store_at(self, buffer: Buffer, form: Affine, value: Operand) -> None:
        pointer = self.pointer(buffer, form, self.here)
        if buffer.dtype is bool_:
            kind = memory_type(bool_, value.lanes)
            name = self.f.fresh()
            self.f.line(f"{name} = zext {value} to {kind}")
            self.f.line(f"store {kind} {name}, ptr {pointer}, align 1")
        else:
            self.f.line(f"store {value}, ptr {pointer}, align {buffer.dtype.itemsize}")

    def stream_at(self, buffer: Buffer, form: Affine, value: Operand) -> None:
        """A store of a vector that goes past the caches if its address is aligned."""
        pointer = self.pointer(buffer, form, self.here)
        nbytes = self.lanes * buffer.dtype.itemsize
        address = self.f.emit(f"ptrtoint ptr {pointer} to i64", i64)
        below = self.f.binary("and", address, literal(nbytes - 1, i64))
        for predicate, how in (
            ("eq", f"align {nbytes}, !nontemporal !{{i32 1}}"),
            ("ne", f"align {buffer.dtype.itemsize}"),
        ):
            decided = self.f.compare(predicate, below, literal(0, i64))
            self.f.open_branch()
            self.f.line(f"store {value}, ptr {pointer}, {how}")
            self.f.close_branch(decided)
        self.streams = True

    def lead(self, buffer: Buffer, lanes: int) -> Operand:
        """Elements from the start of a buffer to the first aligned address of a vector."""
        base, size = self.storage.base(buffer), buffer.dtype.itemsize
        address = self.f.emit(f"ptrtoint ptr {base} to i64", i64)
        negated = self.f.binary("sub", literal(0, i64), address)
        nbytes = self.f.binary("and", negated, literal(lanes * size - 1, i64))
        return self.f.binary("udiv", nbytes, literal(size, i64))

    # ------------------------------------------------------------------------------- masks
    def lanes_where(self, condition: Expr) -> range | None:
        """The lanes of the vector loop around for which a condition on the lane alone holds, if
        they are neighbours."""
        if isinstance(condition, Binary) and condition.op == "and":
            left, right = self.lanes_where(condition.left), self.lanes_where(condition.right)
            if left is None or right is None:
                return None
            return range(max(left.start, right.start), min(left.stop, right.stop))
        if self.lane_var is None or self.symbols(condition) != {self.lane_var}:
            return None
        key = (condition, self.lanes)
        if key not in self.runs:
            values = [substitute(condition, {self.lane_var: as_expr(n)}) for n in range(self.lanes)]
            known = all(isinstance(v, Const) for v in values)
            chosen = [n for n, v in enumerate(values) if isinstance(v, Const) and v.value]
            run = range(chosen[0], chosen[-1] + 1) if chosen else range(0)
            self.runs[key] = run if known and len(run) == len(chosen) else None
        return self.runs[key]

    def masked_load(self, read: Read, other: Const, run: range) -> Operand | None:
        """Some lanes from neighbouring elements, the others a constant; memory before the first
        one that counts and behind the last is not touched.  None if elements are further than
        two apart."""
        buffer = read.tensor
        if not isinstance(buffer, Buffer) or buffer.scope == "register" or self.limits is not None:
            return None
        if buffer.dtype is bool_ or not all(map(self.is_index, read.indices)):
            return None
        step, rest = self.per_lane(self.address_form(buffer, read.indices))
        if rest is None or step not in (1, 2):
            return None
        base, low = rest.constant, rest.constant + step * run.start
        end = rest.constant + step * (run.stop - 1) + 1
        even, pairs = base - base % 2, (low - low % 2, end + end % 2)
        if step == 2 and self.holds(buffer, rest.terms, pairs[0], pairs[1] - pairs[0]):
            # Pairs of vectors from which even and odd elements are picked are read once.
            base, (low, end) = even, pairs
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
        key = ("load", buffer, at, self.lanes, run, other)
        known = self.f.scopes[self.here].known
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

    def store_some(self, buffer: Buffer, indices: Sequence[Expr], value: Expr, run: range) -> None:
        """A store that takes place in some lanes only."""
        require_code(buffer.scope == "memory" and buffer.dtype is not bool_,
                     f"some lanes of {buffer.type} in {buffer.scope}")  # fmt: skip
        step, rest = self.per_lane(self.address_form(buffer, indices))
        require_code(rest is not None and step == 1 and all(map(self.is_index, indices)),
                     f"some lanes of '{buffer.name}' that are not neighbours")  # fmt: skip
        assert rest is not None
        stored = self.f.splat(self.evaluate(value), self.lanes)
        if self.limits is not None:
            for lane in run:
                self.check(buffer, self.in_lane(indices, lane))
        pointer = self.pointer(buffer, rest, self.here)
        name = f"llvm.masked.store.{self.f.type_suffix(buffer.dtype, self.lanes)}.p0"
        mask = self.mask(run)
        self.f.module.declare(name, "void", stored.type, "ptr", "i32", mask.type)
        size = buffer.dtype.itemsize
        self.f.line(f"call void @{name}({stored}, ptr {pointer}, i32 {size}, {mask})")
        self.forget(buffer)

    def mask(self, run: range) -> Operand:
        flags = ", ".join(f"i1 {str(n in run).lower()}" for n in range(self.lanes))
        return Operand(f"<{flags}>", bool_, self.lanes)

    def prefetch(self, buffer: Buffer, indices: Sequence[Expr]) -> None:
        """Ask for the line of an element, to lie in the second cache when it is needed."""
        pointer = self.pointer(buffer, self.address_form(buffer, indices), self.here)
        self.f.module.declare("llvm.prefetch.p0", "void", "ptr", "i32", "i32", "i32")
        self.f.line(f"call void @llvm.prefetch.p0(ptr {pointer}, i32 0, i32 2, i32 1)")

    def forget(self, buffer: Buffer) -> None:
        """Loads of a buffer that has been written are stale from here on."""
        for scope in self.f.scopes:
            stale = [
                k for k in scope.known if isinstance(k, tuple) and k[0] == "load" and k[1] is buffer
            ]
            for key in stale:
                del scope.known[key]

    # --------------------------------------------------------------------------- registers
    def is_vector_index(self, indices: Sequence[Expr]) -> bool:
        return any(self.is_vector(i) for i in indices)

    def fixed(self, buffer: Buffer, indices: Sequence[Expr]) -> tuple[int, ...]:
        """Register numbers: constants after unrolling, with the lane left out."""
        numbers = []
        for index in indices:
            form = affine(index)
            terms = [a for a, _ in form.terms if a is not self.lane_var]
            check(not terms, "WH1301", f"register '{buffer.name}' is indexed by {index}")
            numbers.append(form.constant)
        return tuple(numbers)

    def load_register(self, buffer: Buffer, indices: Sequence[Expr]) -> Operand:
        lanes = self.lanes if self.is_vector_index(indices) else 0
        slot = self.storage.register(buffer, self.fixed(buffer, indices), lanes)
        return self.f.emit(
            f"load {llvm_type(buffer.dtype, lanes)}, ptr {slot}", buffer.dtype, lanes
        )

    # -------------------------------------------------------------------------- expressions
    def value(self, e: Expr) -> Operand:
        """The value of an expression, written once per statement."""
        if e in self.names:
            return self.names[e]
        key = (e, self.guarded)
        if key not in self.memo:
            self.memo[key] = self.write(e)
        return self.memo[key]

    def write(self, e: Expr) -> Operand:
        if e is self.lane_var:
            lanes = ", ".join(f"i64 {n}" for n in range(self.lanes))
            return Operand(f"<{lanes}>", i64, self.lanes)
        if not isinstance(e, Const) and self.is_index(e) and not self.is_vector(e):
            return self.full_index(e)
        match e:
            case Const(value=value, dtype=dtype):
                return literal(value, dtype)
            case Read(tensor=Buffer() as buffer, indices=indices):
                return self.load(buffer, indices)
            case Binary():
                return self.infix(e)
            case Select(condition=condition, then=then, other=other):
                run = self.lanes_where(condition)
                if run is not None and len(run) == self.lanes:
                    return self.value(then)
                if run is not None and isinstance(then, Read) and isinstance(other, Const):
                    masked = self.masked_load(then, other, run)
                    if masked is not None:
                        return masked
                chosen = self.value(condition)
                return self.f.choose(
                    chosen, self.under_condition(then), self.under_condition(other)
                )
            case Cast(value=inner, dtype=dtype):
                return conversion.convert(self.f, self.value(inner), dtype)
            case Reinterpret(value=inner, dtype=dtype):
                return conversion.reinterpret(self.f, self.value(inner), dtype)
            case Call(name=name, args=args):
                return mathlib.call(self.f, name, [self.value(a) for a in args])
            case Reduce(kind=kind, axes=(axis,), value=Read(tensor=Buffer() as buffer, indices=at)):
                return self.across_lanes(kind, axis, buffer, at)
        no_code(f"'{e}'")

    def under_condition(self, e: Expr) -> Operand:
        """A value that counts only sometimes: its reads are kept inside their buffers."""
        outer, self.guarded = self.guarded, True
        result = self.value(e)
        self.guarded = outer
        return result

    def infix(self, e: Binary) -> Operand:
        op, dtype = e.op, e.left.dtype
        if op in ("and", "or"):
            return self.f.binary(op, self.value(e.left), self.under_condition(e.right))
        if compute_dtype(dtype) != dtype:
            return self.half_precision(e)
        if op == "add" and dtype.is_float:
            fused = self.multiply_add(e)
            if fused is not None:
                return fused
        a, b = self.value(e.left), self.value(e.right)
        if op in _COMPARES:
            if dtype.is_float:
                prefix = "u" if op == "ne" else "o"
            else:
                prefix = "" if op in ("eq", "ne") else ("s" if dtype.kind == "int" else "u")
            return self.f.compare(prefix + op, a, b)
        if dtype.is_float and op in _FLOAT_OPCODES:
            return self.f.binary(_FLOAT_OPCODES[op], a, b)
        if dtype.is_integer and op in _INT_OPCODES:
            return self.f.binary(_INT_OPCODES[op], a, b)
        return mathlib.call(self.f, op, [a, b])

    def half_precision(self, e: Binary) -> Operand:
        """Arithmetic and comparison of half precision: in f32, rounded once."""
        wide = Binary(e.op, cast(e.left, f32), cast(e.right, f32))
        return conversion.convert(self.f, self.value(wide), e.dtype)

    def multiply_add(self, e: Binary) -> Operand | None:
        """a * b + c in one rounding where the machine can, as every BLAS does."""
        for product, addend in ((e.right, e.left), (e.left, e.right)):
            if isinstance(product, Binary) and product.op == "mul":
                operands = [self.value(x) for x in (product.left, product.right, addend)]
                lanes = max(x.lanes for x in operands)
                return self.f.intrinsic("fmuladd", *(self.f.splat(x, lanes) for x in operands))
        return None

    def across_lanes(self, kind: str, axis: Axis, buffer: Buffer, at: Sequence[Expr]) -> Operand:
        """The reduction of one vector register to a scalar."""
        require_code(buffer.scope == "register", f"a {kind} inside an expression")
        slot = self.storage.register(
            buffer,
            tuple(affine(substitute(i, {axis: as_expr(0)})).constant for i in at),
            axis.extent,
        )
        vector = self.f.emit(
            f"load {llvm_type(buffer.dtype, axis.extent)}, ptr {slot}", buffer.dtype, axis.extent
        )
        return mathlib.reduce_lanes(self.f, kind, vector)
