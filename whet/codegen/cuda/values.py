"""Expressions to C++ text.

What occurs twice in a statement gets a name, and so does what must not always be computed: of a
choice between values that are read from memory, only the chosen one is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from whet.codegen.cuda import scalars
from whet.codegen.cuda.addresses import address_elsewhere
from whet.codegen.cuda.indexing import Indices
from whet.codegen.cuda.lines import Lines
from whet.codegen.cuda.places import FRAGMENT_REGISTERS, Places
from whet.codegen.cuda.support import HALVES, memory_type, no_code, require_code, value_type
from whet.core.dtypes import DType, bool_, f32, i64
from whet.core.precision import PRECISIONS
from whet.ir.affine import affine, free_symbols, substitute
from whet.ir.expr import (
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Read,
    Reduce,
    Reinterpret,
    Select,
    Var,
    as_expr,
)
from whet.ir.program import Buffer
from whet.ir.tensor import subexpressions

_STEPS = {
    "sum": ("add", 0), "prod": ("mul", 1), "max": ("max", float("-inf")),
    "min": ("min", float("inf")), "any": ("any", False), "all": ("all", True),
}  # fmt: skip
"""The step of a reduction over floats or truth values, and what it begins with."""


class Values:
    """Writes the values of expressions."""

    def __init__(self, lines: Lines, indices: Indices, places: Places) -> None:
        self.lines, self.indices, self.places = lines, indices, places
        self.known: dict[Expr, str] = {}
        self.uses: Counter[Expr] = Counter()
        self.storage = PRECISIONS[lines.target.precision].storage
        """The type that numbers have in memory alone: what is made into it and back is not."""

    # ---------------------------------------------------------------------------- statements
    def begin(self, *roots: Expr) -> None:
        """A new statement: memory may have changed since the last one."""
        self.known = {}
        self.uses = Counter(c for e in subexpressions(*roots) for c in e.children())

    def evaluate(self, e: Expr) -> str:
        """The value of the only expression of a new statement."""
        self.begin(e)
        return self.value(e)

    @contextmanager
    def branch(self, head: str) -> Iterator[None]:
        """Text that does not always run: names that it gives are forgotten behind it."""
        known = dict(self.known)
        with self.lines.block(head):
            yield
        self.known = known

    # --------------------------------------------------------------------------- expressions
    def value(self, e: Expr) -> str:
        found = self.known.get(e)
        if found is not None:
            return found
        text = self.write(e)
        if self.uses[e] > 1 and not isinstance(e, Const | Var) and not self.indices.is_index(e):
            text = self.named(text, self.type_of(e))
            self.known[e] = text
        return text

    def named(self, text: str, kind: str) -> str:
        name = self.lines.name("v")
        self.lines.line(f"const {kind} {name} = {text};")
        return name

    def type_of(self, e: Expr) -> str:
        if e.dtype is i64 and self.indices.is_index(e):
            return "int" if self.indices.is_narrow(e) else "long long"
        return value_type(e.dtype)

    def write(self, e: Expr) -> str:
        if self.indices.is_index(e):
            return self.indices.index(e)
        match e:
            case Const(value=value, dtype=dtype):
                return scalars.literal(value, dtype)
            case Var():
                return self.indices.names[e]
            case Read(tensor=Buffer() as buffer, indices=at):
                return self.load(buffer, at)
            case Binary(op="and" | "or" as op, left=left, right=right):
                return self.both(op, left, right)
            case Binary(op="div", left=left, right=Const(value=by)) if scalars.has_reciprocal(
                by, left.dtype
            ):
                return scalars.divided(self.lines, self.value(left), float(by), left.dtype)
            case Binary(op=op, left=left, right=right):
                a, b = self.value(left), self.value(right)
                return scalars.infix(self.lines, op, left.dtype, a, b)
            case Select(condition=condition, then=then, other=other):
                return self.choice(condition, then, other)
            case Cast(value=Cast(value=inner, dtype=between), dtype=dtype) if (
                inner.dtype == dtype and between == self.storage
            ):
                return self.value(inner)
            case Cast(value=inner, dtype=dtype):
                return scalars.convert(self.lines, f"({self.value(inner)})", inner.dtype, dtype)
            case Reinterpret(value=inner, dtype=dtype):
                return scalars.reinterpret(self.lines, self.value(inner), inner.dtype, dtype)
            case Call(name=name, args=args):
                texts = [self.value(a) for a in args]
                if name in ("isnan", "isinf") and args[0] not in self.known:
                    texts = [self.named(texts[0], self.type_of(args[0]))]
                return scalars.function(self.lines, name, args[0].dtype, texts)
            case Reduce():
                return self.reduction(e)
        no_code(f"'{e}'")

    def both(self, op: str, left: Expr, right: Expr) -> str:
        """A conjunction or disjunction, whose right side may rely on the left one."""
        a = self.value(left)
        sign = "&&" if op == "and" else "||"
        known = dict(self.known)
        with self.lines.apart() as found:
            b = self.value(right)
        if not found:
            return f"({a} {sign} {b})"
        self.known = known
        name = self.lines.name("c")
        self.lines.line(f"bool {name} = {a};")
        with self.branch(f"if ({name if op == 'and' else f'!{name}'})"):
            self.lines.line(f"{name} = {self.value(right)};")
        return name

    def choice(self, condition: Expr, then: Expr, other: Expr) -> str:
        """One of two values, the other of which is not computed if it reads memory."""
        chosen = self.value(condition)
        if isinstance(then, Read) and isinstance(other, Const) and self.is_half(then):
            return self.read_or(chosen, then, other)
        known = dict(self.known)
        with self.lines.apart() as found:
            a, b = self.value(then), self.value(other)
        if not found:
            return f"({chosen} ? {a} : {b})"
        self.known = known
        name = self.lines.name("s")
        self.lines.line(f"{value_type(then.dtype)} {name};")
        for head, side in ((f"if ({chosen})", then), ("else", other)):
            with self.branch(head):
                self.lines.line(f"{name} = {self.value(side)};")
        return name

    def is_half(self, read: Read) -> bool:
        """Whether an element of half precision lies in memory, and is not known yet."""
        buffer = read.tensor
        if read in self.known or not isinstance(buffer, Buffer):
            return False
        return buffer.dtype in HALVES and buffer.scope == "memory"

    def read_or(self, chosen: str, read: Read, other: Const) -> str:
        """An element or a constant, made a value behind the choice, so that no predicate must be
        kept until the element is there."""
        assert isinstance(read.tensor, Buffer)
        buffer, name = read.tensor, self.lines.name("s")
        self.lines.line(f"{memory_type(buffer.dtype)} {name} = {self.to_memory(other, buffer)};")
        with self.branch(f"if ({chosen})"):
            at = self.checked(buffer, read.indices)
            place = self.text_of(self.places.address(buffer, at).expr())
            self.lines.line(f"{name} = {self.places.bases[buffer]}[{place}];")
        return self.from_memory(name, buffer)

    def reduction(self, e: Reduce) -> str:
        """A reduction inside an expression, as a loop over its one axis."""
        require_code(len(e.axes) == 1 and e.kind in _STEPS, f"a {e.kind} inside an expression")
        (axis,) = e.axes
        name, counter = self.lines.name("r"), Var(self.lines.name("i"))
        inner = substitute(e.value, {axis: counter})
        first = scalars.literal(_STEPS[e.kind][1], e.dtype)
        self.lines.line(f"{value_type(e.dtype)} {name} = {first};")
        outer, self.uses = self.uses, Counter()
        head = f"for (int {counter.name} = 0; {counter.name} < {axis.extent}; ++{counter.name})"
        with self.branch(head), self.indices.symbol(counter, counter.name, axis.extent):
            value = self.value(inner)
            step = _STEPS[e.kind][0]
            if step in ("any", "all"):
                total = f"({name} {'||' if step == 'any' else '&&'} {value})"
            else:
                total = scalars.infix(self.lines, step, e.dtype, name, value)
            self.lines.line(f"{name} = {total};")
        self.uses = outer
        return name

    # -------------------------------------------------------------------------------- memory
    def load(self, buffer: Buffer, at: Sequence[Expr]) -> str:
        """An element as a value."""
        if buffer.scope == "fragment":
            return f"{self.places.bases[buffer]}[{self.element(buffer, at)}]"
        at = self.checked(buffer, at)
        form = self.places.address(buffer, at)
        base = self.places.bases[buffer]
        if self.places.is_elsewhere(buffer, at):
            require_code(buffer.dtype.bits == 32, "elements of other blocks that have no 32 bits")
            bits = f"{self.lines.call('load_cluster_4')}({address_elsewhere(self, buffer, at)})"
            return self.of_bits(bits, buffer.dtype)
        return self.from_memory(f"{base}[{self.text_of(form.expr())}]", buffer)

    def from_memory(self, text: str, buffer: Buffer) -> str:
        if self.places.holds_values(buffer):
            return text
        if buffer.dtype in HALVES:
            return f"{self.lines.call(f'from_{buffer.dtype}')}({text})"
        return f"({text} != 0)" if buffer.dtype is bool_ else text

    def to_memory(self, e: Expr, buffer: Buffer) -> str:
        """A value as it lies in a buffer."""
        if self.places.holds_values(buffer) or buffer.scope == "fragment":
            return self.value(e)
        if buffer.dtype in HALVES and isinstance(e, Cast) and e.value.dtype is f32:
            e = e.value  # the conversion of elements rounds it
        text = self.value(e)
        if buffer.dtype in HALVES:
            return f"{self.lines.call(f'to_{buffer.dtype}')}({text})"
        return f"({memory_type(buffer.dtype)}){text}" if buffer.dtype is bool_ else text

    def of_bits(self, text: str, dtype: DType) -> str:
        """32 bits as a value."""
        if dtype.is_float:
            return f"__uint_as_float({text})"
        return f"({memory_type(dtype)}){text}"

    def text_of(self, e: Expr) -> str:
        """An index: arithmetic on variables, or a value from memory."""
        return self.indices.index(e) if self.indices.is_index(e) else self.value(e)

    def checked(self, buffer: Buffer, at: Sequence[Expr]) -> tuple[Expr, ...]:
        """Indices forced into the buffer where they come from memory and may be outside, which
        the status then says."""
        found: list[Expr] = []
        for index, extent in zip(at, buffer.shape, strict=True):
            reach = self.indices.reach(index)
            inside = reach is not None and reach[0] >= 0 and reach[1] < extent
            if self.indices.is_index(index) or inside:
                found.append(index)
                continue
            self.lines.has_status = True
            text = f"{self.lines.call('inside')}({self.value(index)}, {extent}LL, status)"
            made = Var(self.lines.name("at"))
            self.lines.line(f"const long long {made.name} = {text};")
            # Kept until the kernel ends: its name is nobody else's.
            self.indices.names[made] = made.name
            self.indices.wide.add(made)
            self.indices.extents[made] = extent
            found.append(made)
        return tuple(found)

    def element(self, buffer: Buffer, at: Sequence[Expr]) -> str:
        """The register of an element of a fragment, inside a loop over its elements."""
        require_code(self.places.elements is not None, "an element of a matrix outside its loop")
        assert self.places.elements is not None
        row, first, number = self.places.elements
        beside = affine(at[-1] - first).expr()
        own = at[-2] is row and not {row, first} & free_symbols(beside)
        require_code(own, "an element of a matrix that its lane does not hold")
        return f"{self.matrix(buffer, at[:-2])} + {number} + {self.indices.index(beside)}"

    def matrix(self, buffer: Buffer, number: Sequence[Expr]) -> str:
        """The first register of one of the matrices in a buffer."""
        position: Expr = as_expr(0)
        for index, extent in zip(number, buffer.shape[:-2], strict=True):
            position = position * extent + index
        registers = FRAGMENT_REGISTERS[self.places.roles[buffer]]
        return self.indices.index(position * registers)


def in_lane(e: Expr, var: Var, lane: int) -> Expr:
    """The expression in one round of a vector loop."""
    return substitute(e, {var: as_expr(lane)})
