"""Expressions to instructions: loads, arithmetic, addresses, and where each is written.

Inside a vector loop an expression that depends on the loop's variable becomes a vector.  A
read whose address moves by one element per lane is a vector load, by none a scalar load that
is broadcast, and anything else is gathered lane by lane.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby

from whet.codegen.llvm import mathlib
from whet.codegen.llvm.function import FunctionWriter
from whet.codegen.llvm.operand import Operand, literal, llvm_type, memory_type
from whet.core.dtypes import DType, bool_, f32, i64
from whet.core.errors import check
from whet.ir.affine import Affine, affine, combine, free_symbols, interval, substitute
from whet.ir.expr import (
    Axis,
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Read,
    Reduce,
    Select,
    Var,
    as_expr,
    call,
)
from whet.ir.program import Buffer
from whet.ir.tensor import Tensor

STACK_LIMIT_BYTES = 512 << 10

_INT_OPCODES = {"add": "add", "sub": "sub", "mul": "mul"}
_FLOAT_OPCODES = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_COMPARES = {"lt": "lt", "le": "le", "gt": "gt", "ge": "ge", "eq": "eq", "ne": "ne"}


class Storage:
    """Where the elements of buffers are: the parameter table, the stack, or registers."""

    def __init__(
        self, function: FunctionWriter, slots: Mapping[Buffer, int], frozen: frozenset[Buffer]
    ) -> None:
        self.function, self.slots, self.frozen = function, slots, frozen
        self.bases: dict[Buffer, str] = {}
        self.generation: dict[Buffer, int] = {}
        self.registers: dict[tuple[Buffer, int, tuple[int, ...], int], str] = {}

    def allocate(self, buffer: Buffer) -> None:
        """Room for a scratch buffer; a second allocation of it is a new one."""
        self.generation[buffer] = self.generation.get(buffer, 0) + 1
        if buffer.scope == "memory":
            check(buffer.type.nbytes <= STACK_LIMIT_BYTES, "WH1301",
                  f"scratch buffer '{buffer.name}' of {buffer.type} does not fit the stack")  # fmt: skip
            name = self.function.fresh("stack")
            kind = f"[{buffer.type.size} x {memory_type(buffer.dtype)}]"
            self.function.allocas.append(f"{name} = alloca {kind}, align 64")
            self.bases[buffer] = name

    def base(self, buffer: Buffer) -> str:
        """The address of element 0 of a memory buffer."""
        if buffer not in self.bases:
            check(buffer in self.slots, "WH1301", f"buffer '{buffer.name}' is not defined")
            slot, base = self.function.fresh("slot"), self.function.fresh("base")
            self.function.allocas += [
                f"{slot} = getelementptr ptr, ptr %table, i64 {self.slots[buffer]}",
                f"{base} = load ptr, ptr {slot}, align 8, !invariant.load !{{}}",
            ]
            self.bases[buffer] = base
        return self.bases[buffer]

    def register(self, buffer: Buffer, indices: tuple[int, ...], lanes: int) -> str:
        """The stack slot that stands for a register; `sroa` turns it into one."""
        key = (buffer, self.generation[buffer], indices, lanes)
        if key not in self.registers:
            name = self.function.fresh("reg")
            self.function.allocas.append(f"{name} = alloca {memory_type(buffer.dtype, lanes)}")
            self.registers[key] = name
        return self.registers[key]


class ValueWriter:
    """Writes expressions at the place where their operands are known."""

    def __init__(self, function: FunctionWriter, storage: Storage) -> None:
        self.f, self.storage = function, storage
        self.levels: dict[Expr, int] = {}
        self.names: dict[Expr, Operand] = {}
        self.extents: dict[Expr, int] = {}
        self.lane_var: Var | None = None
        self.lanes = 0
        self.guarded = False

    # ----------------------------------------------------------------------------- symbols
    @contextmanager
    def counter(self, var: Var, name: str, extent: int) -> Iterator[None]:
        """Within, `var` is the counter of the loop whose body was opened last."""
        self.levels[var] = len(self.f.scopes) - 1
        self.names[var] = Operand(name, i64)
        self.extents[var] = extent
        yield
        del self.levels[var], self.names[var], self.extents[var]

    @contextmanager
    def vector(self, var: Var, lanes: int) -> Iterator[None]:
        """Within, `var` stands for the lanes of vectors."""
        check(self.lane_var is None, "WH1301", "vector loops cannot be nested")
        self.lane_var, self.lanes = var, lanes
        self.extents[var] = lanes
        yield
        self.lane_var, self.lanes = None, 0
        del self.extents[var]

    def bind(self, var: Var, value: Operand) -> None:
        self.levels[var] = len(self.f.scopes) - 1
        self.names[var] = value

    def level(self, e: Expr) -> int:
        """The scope in which all symbols of e are known."""
        return max((self.levels.get(s, 0) for s in free_symbols(e)), default=0)

    def is_vector(self, e: Expr) -> bool:
        return self.lane_var is not None and self.lane_var in free_symbols(e)

    # ----------------------------------------------------------------------- index numbers
    def index(self, form: Affine) -> Operand:
        """A linear form as an i64, its parts written in the scopes where they are known.

        Parts are added from the outermost scope inwards, so that every partial sum is
        computed as rarely as possible.  The constant is left to the caller.
        """
        total: Operand | None = None
        key: tuple[tuple[Expr, int], ...] = ()
        ordered = sorted(form.terms, key=lambda t: self.level(t[0]))
        for level, terms in groupby(ordered, key=lambda t: self.level(t[0])):
            for atom, factor in terms:
                term = self.atom(atom, level)
                if factor != 1:
                    term = self.f.once(("scaled", atom, factor), f"mul nsw {term}, {factor}",
                                       i64, 0, level)  # fmt: skip
                key = (*key, (atom, factor))
                total = term if total is None else self.f.once(
                    ("sum", key), f"add nsw {total}, {term.text}", i64, 0, level)  # fmt: skip
        return total if total is not None else literal(0, i64)

    def atom(self, e: Expr, level: int) -> Operand:
        """A variable, or an integer operation that is not linear, at its own scope."""
        if e in self.names:
            return self.names[e]
        match e:
            case Binary(op="floordiv" | "mod" as op, left=left, right=right):
                return self.quotient(op, left, right, level)
            case Call(name="min" | "max" as name, args=(a, b)):
                x, y = self.full_index(a), self.full_index(b)
                self.f.module.declare(f"llvm.s{name}.i64", "i64", "i64", "i64")
                text = f"call i64 @llvm.s{name}.i64(i64 {x.text}, i64 {y.text})"
                return self.f.once((e,), text, i64, 0, level)
        return self.value(e)

    def full_index(self, e: Expr) -> Operand:
        """An integer expression including its constant part."""
        form = affine(e)
        if not form.terms:
            return literal(form.constant, i64)
        base = self.index(form)
        if not form.constant:
            return base
        level = max(self.level(a) for a, _ in form.terms)
        return self.f.once(("plus", form.terms, form.constant),
                           f"add nsw {base}, {form.constant}", i64, 0, level)  # fmt: skip

    def quotient(self, op: str, left: Expr, right: Expr, level: int) -> Operand:
        """Floor division or modulus by a positive number."""
        check(isinstance(right, Const) and right.value > 0, "WH1301", f"division by {right}")
        assert isinstance(right, Const)
        a, by = self.full_index(left), int(right.value)
        bounds = interval(left, self.extents)
        key = (op, left, by)
        if bounds is not None and bounds[0] >= 0:
            opcode = "udiv" if op == "floordiv" else "urem"
            return self.f.once(key, f"{opcode} {a}, {by}", i64, 0, level)
        # Round toward minus infinity: shift the dividend up by a multiple first.
        remainder = self.f.once((*key, "r"), f"srem {a}, {by}", i64, 0, level)
        wrapped = self.f.once((*key, "w"), f"add nsw {remainder}, {by}", i64, 0, level)
        modulus = self.f.once((*key, "m"), f"urem {wrapped}, {by}", i64, 0, level)
        if op == "mod":
            return modulus
        exact = self.f.once((*key, "e"), f"sub nsw {a}, {modulus.text}", i64, 0, level)
        return self.f.once(key, f"sdiv exact {exact}, {by}", i64, 0, level)

    # -------------------------------------------------------------------------- addresses
    def address_form(self, buffer: Buffer, indices: Sequence[Expr]) -> Affine:
        strides = buffer.element_strides
        return combine([(affine(i), s) for i, s in zip(indices, strides)], buffer.offset)

    def pointer(self, buffer: Buffer, form: Affine) -> str:
        """The address of an element: hoisted base plus a constant displacement."""
        base = self.storage.base(buffer)
        kind = memory_type(buffer.dtype)
        if form.terms:
            offset = self.index(form)
            level = max(self.level(a) for a, _ in form.terms)
            key = ("pointer", buffer, form.terms)
            base = self.f.once(key, f"getelementptr {kind}, ptr {base}, i64 {offset.text}",
                               i64, 0, level).text  # fmt: skip
        if not form.constant:
            return base
        return self.f.emit(f"getelementptr {kind}, ptr {base}, i64 {form.constant}", i64).text

    def clamp(self, buffer: Tensor, indices: Sequence[Expr]) -> tuple[Expr, ...]:
        """Indices forced into the buffer, where they cannot be proved to be inside.

        Under a condition the chosen side alone is meant, but both sides are loaded.
        """
        inside = []
        for index, extent in zip(indices, buffer.shape):
            bounds = interval(index, self.extents)
            if bounds is not None and bounds[0] >= 0 and bounds[1] < extent:
                inside.append(index)
            else:
                inside.append(call("max", call("min", index, extent - 1), 0))
        return tuple(inside)

    # ------------------------------------------------------------------------------ memory
    def load(self, buffer: Buffer, indices: Sequence[Expr]) -> Operand:
        if buffer.scope == "register":
            return self.load_register(buffer, indices)
        if self.guarded:
            indices = self.clamp(buffer, indices)
        form = self.address_form(buffer, indices)
        if self.lane_var is not None and any(self.is_vector(a) for a, _ in form.terms):
            step = form.coefficient(self.lane_var)
            rest = Affine(tuple(t for t in form.terms if t[0] is not self.lane_var), form.constant)
            if any(self.is_vector(a) for a, _ in rest.terms):
                return self.gather([
                    self.address_form(buffer, [substitute(i, {self.lane_var: as_expr(n)}) for i in indices])
                    for n in range(self.lanes)
                ], buffer)  # fmt: skip
            if step != 1:
                return self.gather(
                    [Affine(rest.terms, rest.constant + step * n) for n in range(self.lanes)],
                    buffer,
                )
            return self.load_at(buffer, rest, self.lanes)
        return self.load_at(buffer, form, 0)

    def gather(self, forms: list[Affine], buffer: Buffer) -> Operand:
        """Elements at several addresses as one vector.

        Addresses that differ only by constants within a short reach are read as one or two
        vectors and shuffled into place; anything else is read lane by lane.
        """
        lanes, constants = len(forms), [form.constant for form in forms]
        low, reach = min(constants), max(constants) - min(constants) + 1
        same = all(form.terms == forms[0].terms for form in forms)
        if not same or reach > 2 * lanes or lanes == 1 or buffer.dtype is bool_:
            return self.f.pack([self.load_at(buffer, form, 0) for form in forms])
        if reach == 1:
            return self.f.splat(self.load_at(buffer, forms[0], 0), lanes)
        size = min(reach, lanes)
        first = self.load_at(buffer, Affine(forms[0].terms, low), size)
        # The second read ends at the last element that is wanted, never behind it.
        begin = max(constants) - size + 1
        second = self.load_at(buffer, Affine(forms[0].terms, begin), size)
        picks = [c - low if c - low < size else c - begin + size for c in constants]
        mask = ", ".join(f"i32 {n}" for n in picks)
        text = f"shufflevector {first}, {second}, <{lanes} x i32> <{mask}>"
        return self.f.emit(text, buffer.dtype, lanes)

    def load_at(self, buffer: Buffer, form: Affine, lanes: int) -> Operand:
        """A load, shared within its scope; read-only memory is read as far out as possible."""
        level = len(self.f.scopes) - 1
        if buffer in self.storage.frozen:
            # Memory may be read ahead of loops, but not ahead of a condition.
            walls = [n for n, s in enumerate(self.f.scopes) if s.conditional]
            inner = max((self.level(a) for a, _ in form.terms), default=0)
            level = max([inner, *walls])
        key = ("load", buffer, form, lanes)
        for scope in self.f.scopes[level:]:
            if key in scope.known:
                return scope.known[key]
        pointer = self.pointer_at(buffer, form, level)
        kind = memory_type(buffer.dtype, lanes)
        text = f"load {kind}, ptr {pointer}, align {buffer.dtype.itemsize}"
        if buffer.dtype is bool_:
            raw = self.f.fresh()
            self.f.line(f"{raw} = {text}", level)
            text = f"trunc {kind} {raw} to {llvm_type(bool_, lanes)}"
        made = self.f.emit(text, buffer.dtype, lanes, level)
        self.f.scopes[level].known[key] = made
        return made

    def pointer_at(self, buffer: Buffer, form: Affine, level: int) -> str:
        base = self.pointer(buffer, Affine(form.terms, 0))
        if not form.constant:
            return base
        kind = memory_type(buffer.dtype)
        text = f"getelementptr {kind}, ptr {base}, i64 {form.constant}"
        return self.f.emit(text, i64, 0, level).text

    def store(self, buffer: Buffer, indices: Sequence[Expr], value: Expr) -> None:
        stored = self.value(value)
        if buffer.scope == "register":
            lanes = self.lanes if self.is_vector_index(indices) else 0
            slot = self.storage.register(buffer, self.fixed(buffer, indices), lanes)
            stored = self.f.splat(stored, lanes)
            self.f.line(f"store {stored}, ptr {slot}")
            return
        self.forget(buffer)
        form = self.address_form(buffer, indices)
        if self.lane_var is None or not any(self.is_vector(a) for a, _ in form.terms):
            self.store_at(buffer, form, stored)
            return
        step = form.coefficient(self.lane_var)
        rest = Affine(tuple(t for t in form.terms if t[0] is not self.lane_var), form.constant)
        stored = self.f.splat(stored, self.lanes)
        if step == 1 and not any(self.is_vector(a) for a, _ in rest.terms):
            self.store_at(buffer, rest, stored)
            return
        for n in range(self.lanes):
            lane = [substitute(i, {self.lane_var: as_expr(n)}) for i in indices]
            self.store_at(buffer, self.address_form(buffer, lane), self.f.extract(stored, n))

    def store_at(self, buffer: Buffer, form: Affine, value: Operand) -> None:
        pointer = self.pointer(buffer, form)
        if buffer.dtype is bool_:
            kind = memory_type(bool_, value.lanes)
            name = self.f.fresh()
            self.f.line(f"{name} = zext {value} to {kind}")
            self.f.line(f"store {kind} {name}, ptr {pointer}, align 1")
        else:
            self.f.line(f"store {value}, ptr {pointer}, align {buffer.dtype.itemsize}")

    def forget(self, buffer: Buffer) -> None:
        """Loads of a buffer that is being written are stale from here on."""
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
        kind = llvm_type(buffer.dtype, lanes)
        return self.f.emit(f"load {kind}, ptr {slot}", buffer.dtype, lanes)

    # -------------------------------------------------------------------------- expressions
    def value(self, e: Expr) -> Operand:
        """The value of an expression."""
        if e in self.names:
            return self.names[e]
        if e is self.lane_var:
            lanes = ", ".join(f"i64 {n}" for n in range(self.lanes))
            return Operand(f"<{lanes}>", i64, self.lanes)
        match e:
            case Const(value=value, dtype=dtype):
                return literal(value, dtype)
            case Read(tensor=Buffer() as buffer, indices=indices):
                return self.load(buffer, indices)
            case Binary():
                return self.infix(e)
            case Select(condition=condition, then=then, other=other):
                chosen = self.value(condition)
                outer, self.guarded = self.guarded, True
                a, b = self.value(then), self.value(other)
                self.guarded = outer
                return self.f.choose(chosen, a, b)
            case Cast(value=inner, dtype=dtype):
                return self.convert(self.value(inner), dtype)
            case Call(name=name, args=args):
                if e.dtype is i64 and name in ("min", "max") and not self.is_vector(e) and _pure(e):
                    return self.atom(e, self.level(e))
                return mathlib.call(self.f, name, [self.value(a) for a in args])
            case Reduce(kind=kind, axes=(axis,), value=Read(tensor=Buffer() as buffer, indices=at)):
                return self.across_lanes(kind, axis, buffer, at)
        raise AssertionError(f"no code for {e}")

    def infix(self, e: Binary) -> Operand:
        op, dtype = e.op, e.left.dtype
        if dtype is i64 and op not in _COMPARES and not self.is_vector(e) and _pure(e):
            return self.full_index(e)
        if op == "add" and dtype.is_float:
            # a * b + c in one rounding where the machine can, as every BLAS does.
            for product, addend in ((e.right, e.left), (e.left, e.right)):
                if isinstance(product, Binary) and product.op == "mul":
                    a, b, c = (
                        self.value(product.left),
                        self.value(product.right),
                        self.value(addend),
                    )
                    lanes = max(a.lanes, b.lanes, c.lanes)
                    a, b, c = (self.f.splat(x, lanes) for x in (a, b, c))
                    return self.f.intrinsic("fmuladd", a, b, c)
        a, b = self.value(e.left), self.value(e.right)
        if op in _COMPARES:
            if dtype.is_float:
                prefix = "u" if op == "ne" else "o"
            else:
                prefix = "" if op in ("eq", "ne") else ("s" if dtype.kind == "int" else "u")
            return self.f.compare(prefix + _COMPARES[op], a, b)
        if op in ("and", "or"):
            return self.f.binary(op, a, b)
        if dtype.is_float and op in _FLOAT_OPCODES:
            return self.f.binary(_FLOAT_OPCODES[op], a, b)
        if dtype.is_integer and op in _INT_OPCODES:
            return self.f.binary(_INT_OPCODES[op], a, b)
        return mathlib.call(self.f, op, [a, b])

    def across_lanes(self, kind: str, axis: Axis, buffer: Buffer, at: Sequence[Expr]) -> Operand:
        """The reduction of one vector register to a scalar."""
        slot = self.storage.register(
            buffer,
            tuple(affine(substitute(i, {axis: as_expr(0)})).constant for i in at),
            axis.extent,
        )
        vector = self.f.emit(
            f"load {llvm_type(buffer.dtype, axis.extent)}, ptr {slot}", buffer.dtype, axis.extent
        )
        return mathlib.reduce_lanes(self.f, kind, vector)

    def convert(self, a: Operand, dtype: DType) -> Operand:
        """The operand as another element type."""
        source, lanes = a.dtype, a.lanes
        if source is dtype:
            return a
        if dtype is bool_:
            zero = literal(0, source, lanes)
            return self.f.compare("une" if source.is_float else "ne", a, zero)
        target = llvm_type(dtype, lanes)
        if source is bool_:
            opcode = "uitofp" if dtype.is_float else "zext"
        elif source.is_float and dtype.is_float:
            if source.bits == dtype.bits:
                return self.convert(self.convert(a, f32), dtype)
            opcode = "fpext" if dtype.bits > source.bits else "fptrunc"
        elif source.is_float:
            return mathlib.truncate_to_integer(self.f, a, dtype)
        elif dtype.is_float:
            opcode = "sitofp" if source.kind == "int" else "uitofp"
        elif dtype.bits == source.bits:
            return Operand(a.text, dtype, lanes)
        elif dtype.bits < source.bits:
            opcode = "trunc"
        else:
            opcode = "sext" if source.kind == "int" else "zext"
        return self.f.emit(f"{opcode} {a} to {target}", dtype, lanes)


def _pure(e: Expr) -> bool:
    """True when the expression reads no memory, so that it may be written in any scope."""
    stack = [e]
    while stack:
        x = stack.pop()
        if isinstance(x, (Read, Select, Cast)):
            return False
        stack.extend(x.children())
    return True
