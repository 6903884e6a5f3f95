"""Tiles that overlap: when two threads may compute the same elements at the same time.

    for io in 3: for ii in 4: y[min(io * 4, 6) + ii] = f(min(io * 4, 6) + ii)

Elements 6 and 7 are written by two iterations of io.  That does no harm if nothing in the
iteration reads y and both write the same value: one that depends on the place that is written
and not on the iteration.  Values may come through scratch buffers of the iteration, whose places
then stand for places that move along with it (Halide calls such code sliding).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from whet.ir.affine import Affine, affine, combine, free_symbols
from whet.ir.expr import Expr, Read
from whet.ir.program import Allocate, Buffer, If, Loop, Stmt, Store, walk
from whet.ir.tensor import subexpressions
from whet.schedule.program.primitives.accesses import reads_in, stores_in


def writes_agree(loops: Sequence[Loop]) -> bool:
    """True when iterations that write the same element write the same value and read none."""
    body = loops[-1].body
    if not all(isinstance(s, (Store, Loop, If, Allocate)) for s in walk(body)):
        return False
    around = _around(body, frozenset())
    written = {s.buffer for s in stores_in(body)} - set(around)
    if any(r.tensor in written for r in reads_in(body)):
        return False
    own = frozenset(x.var for x in loops)
    if any(own & free_symbols(s.extent) for s in walk(body) if isinstance(s, Loop)):
        return False
    # Loops that are in no place only repeat what is done: iterations agree step by step.
    placed = {v for s in stores_in(body) for i in s.indices for v in free_symbols(i)}
    made = _Shifts(own, {b: inside & placed for b, inside in around.items()}, stores_in(body))
    equations = [e for store, under in _stores(body, ()) for e in made.equations(store, under)]
    found = [e for e in equations if e is not None]
    return len(found) == len(equations) and made.solve(found)


def _around(block: Sequence[Stmt], inside: frozenset[Expr]) -> dict[Buffer, frozenset[Expr]]:
    """The scratch buffers of a block with the loops in the block that they lie in."""
    found: dict[Buffer, frozenset[Expr]] = {}
    for stmt in block:
        if isinstance(stmt, Allocate):
            found[stmt.buffer] = inside
        inner = inside | {stmt.var} if isinstance(stmt, Loop) else inside
        for b in stmt.blocks:
            found |= _around(b, inner)
    return found


def _stores(block: Sequence[Stmt], under: tuple[Expr, ...]) -> Iterator[tuple[Store, list[Expr]]]:
    """Every store with the conditions that it stands under."""
    for stmt in block:
        if isinstance(stmt, Store):
            yield stmt, list(under)
        inner = (*under, stmt.condition) if isinstance(stmt, If) else under
        for b in stmt.blocks:
            yield from _stores(b, inner)


Place = tuple[Buffer, int]
"""A dimension of a scratch buffer."""
Unknown = tuple[tuple[Place, int], ...]
"""Shifts, each with a factor."""


@dataclass(frozen=True)
class _Equation:
    """sum of factor * shift(place) = known"""

    places: Unknown
    known: Affine


class _Shifts:
    """How far dimensions of scratch buffers stand from what they hold.

    A shift is a form over what stays the same while the buffer lives: the iteration, and the
    loops around the buffer.
    """

    def __init__(
        self,
        own: frozenset[Expr],
        around: Mapping[Buffer, frozenset[Expr]],
        stores: Sequence[Store],
    ) -> None:
        self.own, self.around = own, around
        self.atoms = {a for s in stores for i in s.indices for a, _ in affine(i).terms}
        """What places are sums of."""
        self.found: dict[Place, Affine] = {}
        self.beside: dict[Buffer, list[tuple[Affine, Unknown]]] = {b: [] for b in around}
        """Positions that a buffer's contents depend on and that its own indices do not show,
        because they are fixed while it lives."""

    def equations(self, store: Store, under: Sequence[Expr]) -> Iterator[_Equation | None]:
        """What must hold so that the value depends on the place alone; None: it does not."""
        places = [affine(i) for i in store.indices]
        plain = all(self.is_plain(p) for p in places)
        for index, read in _positions([*under, store.value]):
            own: Unknown = ((read, 1),) if read is not None and read[0] in self.around else ()
            hidden = self.beside[own[0][0][0]] if own else []
            forms = [affine(index)] if own else self.parts(index)
            for position, shifts in (*((form, own) for form in forms), *hidden):
                linear = plain and self.is_plain(position)
                yield self.equation(store, places, position, shifts) if linear else None

    def parts(self, index: Expr) -> Iterator[Affine]:
        """Linear forms that an index is a function of.

        (8 * o + i) // 5 * 3 + k   ->   k, 8 * o + i     (channels of a group)
        """
        form = affine(index)
        mixed = [a for a, _ in form.terms
                 if a not in self.atoms and not free_symbols(a) <= self.own]  # fmt: skip
        yield Affine(tuple(t for t in form.terms if t[0] not in mixed), form.constant)
        for atom in mixed:
            if not atom.children():
                yield Affine(((atom, 1),), 0)
            for part in atom.children():
                yield from self.parts(part)

    def is_plain(self, form: Affine) -> bool:
        """True when nothing mixes the iteration with loops inside it, but for sums."""
        symbols = [free_symbols(a) for a, _ in form.terms]
        return all(s <= self.own or not s & self.own for s in symbols)

    def equation(
        self, store: Store, places: Sequence[Affine], form: Affine, shifts: Unknown
    ) -> _Equation | None:
        """A position that moves with the place written must move with the iteration like it.

        y[8 * o + i] = t[i]        shift(t) = 8 * o          (t lies in the loop o)
        t[i] = x[8 * o + i, k]     shift(t) = 8 * o          (k is free: it is not in the place)
        """
        fixed = self.own.union(*(self.around[p[0]] for p, _ in shifts))
        unknown = [(p, -f) for p, f in shifts]
        stored = store.buffer in self.around
        if stored:
            fixed |= self.around[store.buffer]
        rest = form
        moving: set[Expr] = set()
        attributed = False
        for dim, place in enumerate(places):
            inner = [(a, c) for a, c in place.terms if not free_symbols(a) & fixed]
            moving |= {s for a, _ in inner for s in free_symbols(a)}
            # A place that is the same during the iteration is a position like any other.
            factors = {divmod(form.coefficient(a), c) for a, c in inner or place.terms[:1]}
            if len(factors) > 1 or any(remainder for _, remainder in factors):
                return None
            factor = factors.pop()[0] if factors else 0
            attributed = attributed or factor != 0
            rest = combine([(rest, 1), (place, -factor)])
            if stored and factor:
                unknown.append(((store.buffer, dim), factor))
        known = tuple((a, c) for a, c in rest.terms if free_symbols(a) & fixed)
        if any(free_symbols(a) & moving for a, _ in rest.terms if not free_symbols(a) & fixed):
            return None
        if stored and not attributed and (known or unknown):
            hidden = (Affine(known, 0), shifts)
            if hidden not in self.beside[store.buffer]:
                self.beside[store.buffer].append(hidden)
            return _Equation((), Affine((), 0))
        return _Equation(tuple(unknown), Affine(known, 0))

    def solve(self, equations: Sequence[_Equation]) -> bool:
        """True when all equations hold for some shifts; what nothing determines is free."""
        rest = list(equations)
        while rest:
            later: list[_Equation] = []
            for e in rest:
                unknown = [(p, f) for p, f in e.places if p not in self.found]
                known = [(self.found[p], -f) for p, f in e.places if p in self.found]
                left = combine([(e.known, 1), *known])
                if not unknown and left.terms:
                    return False
                if len(unknown) == 1 and abs(unknown[0][1]) == 1:
                    self.found[unknown[0][0]] = combine([(left, unknown[0][1])])
                elif unknown:
                    later.append(e)
            if len(later) == len(rest):
                return not any(e.known.terms for e in later)
            rest = later
        return True


def _positions(values: Sequence[Expr]) -> Iterator[tuple[Expr, Place | None]]:
    """Integer expressions over loop variables: indices with what they index, and others."""
    stack = list(values)
    while stack:
        e = stack.pop()
        if isinstance(e, Read):
            assert isinstance(e.tensor, Buffer)
            for dim, index in enumerate(e.indices):
                if any(isinstance(x, Read) for x in subexpressions(index)):
                    stack.append(index)
                else:
                    yield index, (e.tensor, dim)
        elif any(isinstance(x, Read) for x in e.children()):
            stack.extend(e.children())
        elif e.dtype.kind in ("int", "uint") and free_symbols(e):
            yield e, None
        else:
            stack.extend(e.children())
