"""Addresses of elements: where they are, whether they are inside, how they move per lane."""

from __future__ import annotations

from collections.abc import Mapping

from whet.codegen.llvm import checking
from whet.codegen.llvm.bindings import Bindings, Terms
from whet.codegen.llvm.function import FunctionWriter
from whet.codegen.llvm.indexing import IndexWriter
from whet.codegen.llvm.operand import literal, memory_type
from whet.codegen.llvm.storage import Storage
from whet.core.dtypes import bool_, i64
from whet.ir.affine import Affine, form_interval, substitute
from whet.ir.expr import Expr, as_expr, call
from whet.ir.program import Buffer


class AddressWriter(IndexWriter):
    """Writes addresses, and the checks of indices that may be outside."""

    def __init__(
        self,
        function: FunctionWriter,
        bindings: Bindings,
        storage: Storage,
        limits: Mapping[Buffer, int] | None,
    ) -> None:
        super().__init__(function, bindings)
        self.storage, self.limits = storage, limits
        self._lane_steps: dict[tuple[Expr | None, Terms], tuple[int, Terms | None]] = {}
        self._fixed: dict[Terms, bool] = {}
        self._places: dict[tuple[Expr, ...], tuple[bool, frozenset[Expr]]] = {}

    # ------------------------------------------------------------------------------ places
    def pointer(self, buffer: Buffer, form: Affine, level: int) -> str:
        """The address of an element: hoisted base plus a constant displacement at a scope."""
        kind = memory_type(buffer.dtype)
        base = self._start(buffer, form, kind) if form.terms else self.storage.base(buffer)
        if not form.constant:
            return base
        text = f"getelementptr {kind}, ptr {base}, i64 {form.constant}"
        return self.f.emit(text, i64, 0, level).text

    def _start(self, buffer: Buffer, form: Affine, kind: str) -> str:
        """The address without its constant."""
        fixed = self.is_fixed(form)
        level = self.outermost(form.terms) if fixed else self.here
        known, key = self.f.scopes[level].known, ("pointer", buffer, form.terms)
        if fixed and key in known:
            return known[key].text
        base = self.storage.base(buffer)
        text = f"getelementptr {kind}, ptr {base}, i64 {self.index(form).text}"
        made = self.f.emit(text, i64, 0, level)
        if fixed:
            known[key] = made
        return made.text

    def is_fixed(self, form: Affine) -> bool:
        """True when no part of the address comes from memory."""
        found = self._fixed.get(form.terms)
        if found is None:
            found = self._fixed[form.terms] = all(self.is_index(a) for a, _ in form.terms)
        return found

    def holds(self, buffer: Buffer, terms: Terms, start: int, size: int) -> bool:
        """True when so many elements from an address on are surely inside of the buffer."""
        if buffer.shape != (buffer.type.size,) or buffer.offset:
            return False
        bounds = form_interval(Affine(terms, start), self.extents)
        return bounds is not None and bounds[0] >= 0 and bounds[1] + size <= buffer.shape[0]

    # ------------------------------------------------------------------------------- lanes
    def per_lane(self, form: Affine) -> tuple[int, Affine | None]:
        """How far an address moves per lane, and the rest of it (None if it is not linear)."""
        key = (self.lane_var, form.terms)
        if key not in self._lane_steps:
            rest = tuple(t for t in form.terms if t[0] is not self.lane_var)
            linear = self.lane_var is None or not any(self.is_vector(a) for a, _ in rest)
            step = form.coefficient(self.lane_var) if linear and self.lane_var else 0
            self._lane_steps[key] = (step, rest if linear else None)
        step, terms = self._lane_steps[key]
        return step, None if terms is None else Affine(terms, form.constant)

    def in_lane(self, indices: tuple[Expr, ...], lane: int) -> tuple[Expr, ...]:
        assert self.lane_var is not None
        return tuple(substitute(i, {self.lane_var: as_expr(lane)}) for i in indices)

    def address_per_lane(self, buffer: Buffer, indices: tuple[Expr, ...]) -> list[Affine]:
        """The addresses in every lane, however they are related."""
        lanes = range(self.lanes)
        return [self.bindings.address(buffer, self.in_lane(indices, n)) for n in lanes]

    # ----------------------------------------------------------------------- inside or not
    def are_indices(self, indices: tuple[Expr, ...]) -> bool:
        """True when no index comes from memory."""
        written, symbols = self._place(indices)
        if written and symbols.isdisjoint(self.bindings.renamed):
            return True
        return all(self.is_index(self.bindings.resolve(i)) for i in indices)

    def _place(self, indices: tuple[Expr, ...]) -> tuple[bool, frozenset[Expr]]:
        """Whether all are index arithmetic as they are written, and the symbols in them."""
        found = self._places.get(indices)
        if found is None:
            symbols = frozenset[Expr]().union(*map(self.bindings.symbols, indices))
            found = self._places[indices] = (all(map(self.is_index, indices)), symbols)
        return found

    def is_inside(self, index: Expr, extent: int) -> bool:
        """True when an index is surely within an axis."""
        bounds = form_interval(self.bindings.form(index), self.extents)
        return bounds is not None and bounds[0] >= 0 and bounds[1] < extent

    def clamp(
        self, buffer: Buffer, indices: tuple[Expr, ...], *, guarded: bool
    ) -> tuple[Expr, ...]:
        """Indices forced into the buffer, where they may be outside.

        Under a condition the chosen side alone is meant, but both sides are loaded; and an
        index that comes from memory may be anything.
        """
        if not guarded and self.are_indices(indices):
            return indices
        inside: list[Expr] = []
        for index, extent in zip(indices, buffer.shape):
            if (not guarded and self.are_indices((index,))) or self.is_inside(index, extent):
                inside.append(index)
            else:
                bounded = call("min", self.bindings.resolve(index), extent - 1)
                inside.append(call("max", bounded, 0))
        return tuple(inside)

    def report_outside(self, buffer: Buffer, indices: tuple[Expr, ...]) -> None:
        """Tell the caller when an index that comes from memory is outside the buffer."""
        if self.are_indices(indices):
            return
        for index, extent in zip(indices, buffer.shape):
            if self.are_indices((index,)) or self.is_inside(index, extent):
                continue
            # As an unsigned number a negative index is far outside.
            outside = self.f.compare("uge", self.value(index), literal(extent, i64))
            if outside.lanes:
                name = f"llvm.vector.reduce.or.v{outside.lanes}i1"
                outside = self.f.call(name, bool_, 0, outside)
            self.f.open_branch()
            self.storage.report()
            self.f.close_branch(outside)

    def check(self, buffer: Buffer, indices: tuple[Expr, ...]) -> None:
        """Checks of an access in every lane."""
        assert self.limits is not None
        shape = (self.limits[buffer],) if buffer in self.limits else buffer.shape
        lanes = range(self.lanes) if any(map(self.is_vector, indices)) else None
        for at in [indices] if lanes is None else [self.in_lane(indices, n) for n in lanes]:
            checking.check_access(self.f, buffer.name, shape, [self.value(i) for i in at])
