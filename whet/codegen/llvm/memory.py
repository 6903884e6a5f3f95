"""Loads and stores, of memory and of registers.

Inside a vector loop, a read whose address moves by one element per lane is a vector load, by none
a scalar load that is broadcast, and anything else is gathered lane by lane.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence

from whet.codegen.llvm.addressing import AddressWriter
from whet.codegen.llvm.bindings import Bindings
from whet.codegen.llvm.function import FunctionWriter
from whet.codegen.llvm.operand import Operand, literal, llvm_type, memory_type
from whet.codegen.llvm.storage import Storage
from whet.core.dtypes import bool_, i64
from whet.core.errors import fail
from whet.ir.affine import Affine
from whet.ir.expr import Expr
from whet.ir.program import Buffer


class MemoryWriter(AddressWriter):
    """Writes what reads and writes buffers."""

    def __init__(
        self,
        function: FunctionWriter,
        bindings: Bindings,
        storage: Storage,
        limits: Mapping[Buffer, int] | None,
    ) -> None:
        super().__init__(function, bindings, storage, limits)
        self.guarded = False
        """Whether a condition decides if what is written counts."""
        self.streams = False
        """Whether a store went past the caches."""

    @abstractmethod
    def evaluate(self, e: Expr) -> Operand:
        """The value of an expression of a new statement: memory may have changed."""

    # ------------------------------------------------------------------------------- loads
    def load(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Operand:
        if buffer.scope == "register":
            return self.load_register(buffer, indices)
        if 0 in buffer.shape:
            return literal(0, buffer.dtype)  # only ever read under a condition that fails
        if not self.guarded:
            self.report_outside(buffer, indices)
        indices = self.clamp(buffer, indices, guarded=self.guarded)
        if self.limits is not None:
            self.check(buffer, indices)
        step, rest = self.per_lane(self.bindings.address(buffer, indices))
        if rest is None:
            return self.gather(buffer, self.address_per_lane(buffer, indices))
        if step == 0:
            return self.load_at(buffer, rest, 0)
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

    def load_at(self, buffer: Buffer, form: Affine, lanes: int) -> Operand:
        """A load, shared within its scope; read-only memory is read as far out as possible."""
        level = self.here
        fixed = self.is_fixed(form) and self.limits is None  # nothing is read ahead of its check
        if fixed and buffer in self.storage.frozen:
            # Memory may be read ahead of loops, but not ahead of a condition.
            walls = [n for n, s in enumerate(self.f.scopes) if s.conditional]
            level = max([self.outermost(form.terms), *walls])
        key = (form.terms, form.constant, lanes)
        if fixed:
            for scope in self.f.scopes[level:]:
                if buffer in scope.loads and key in scope.loads[buffer]:
                    return scope.loads[buffer][key]
        pointer = self.pointer(buffer, form, level)
        kind = memory_type(buffer.dtype, lanes)
        text = f"load {kind}, ptr {pointer}, align {buffer.dtype.itemsize}"
        if buffer.dtype is bool_:
            raw = self.f.fresh()
            self.f.line(f"{raw} = {text}", level)
            text = f"trunc {kind} {raw} to {llvm_type(bool_, lanes)}"
        made = self.f.emit(text, buffer.dtype, lanes, level)
        if fixed:
            self.f.scopes[level].loads_of(buffer)[key] = made
        return made

    # ------------------------------------------------------------------------------ stores
    def store(
        self, buffer: Buffer, indices: tuple[Expr, ...], value: Expr, *, stream: bool = False
    ) -> None:
        stored = self.evaluate(value)
        if buffer.scope == "register":
            slot, lanes = self.register(buffer, indices)
            stored = self.f.splat(stored, lanes)
            self.f.line(f"store {stored}, ptr {slot}")
            return
        if 0 in buffer.shape:
            return
        self.report_outside(buffer, indices)
        indices = self.clamp(buffer, indices, guarded=False)
        if self.limits is not None:
            self.check(buffer, indices)
        step, rest = self.per_lane(self.bindings.address(buffer, indices))
        if rest is not None and step == 0:
            self.store_at(buffer, rest, stored)
        elif rest is not None and step == 1:
            write = self.stream_at if stream and buffer.dtype is not bool_ else self.store_at
            write(buffer, rest, self.f.splat(stored, self.lanes))
        else:
            for lane, form in enumerate(self.address_per_lane(buffer, indices)):
                self.store_at(buffer, form, self.f.extract(stored, lane))
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

    def prefetch(self, buffer: Buffer, indices: tuple[Expr, ...]) -> None:
        """Ask for the line of an element, to lie in the second cache when it is needed."""
        pointer = self.pointer(buffer, self.bindings.address(buffer, indices), self.here)
        self.f.module.declare("llvm.prefetch.p0", "void", "ptr", "i32", "i32", "i32")
        self.f.line(f"call void @llvm.prefetch.p0(ptr {pointer}, i32 0, i32 2, i32 1)")

    def forget(self, buffer: Buffer) -> None:
        """Loads of a buffer that has been written are stale from here on."""
        for scope in self.f.scopes:
            scope.loads.pop(buffer, None)

    # --------------------------------------------------------------------------- registers
    def register(self, buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[str, int]:
        """The slot of a register and its lanes: its address is a constant after unrolling, and
        the lane."""
        form, lanes = self.bindings.address(buffer, indices), 0
        for atom, _ in form.terms:
            if atom is not self.lane_var:
                at = ", ".join(str(self.bindings.resolve(i)) for i in indices)
                fail("WH1301", f"register '{buffer.name}' is indexed by {at}")
            lanes = self.lanes
        return self.storage.register(buffer, form.constant, lanes), lanes

    def load_register(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Operand:
        slot, lanes = self.register(buffer, indices)
        return self.f.emit(
            f"load {llvm_type(buffer.dtype, lanes)}, ptr {slot}", buffer.dtype, lanes
        )
