"""Index arithmetic: integers that depend on loop variables alone.

Such an integer is written in the outermost scope in which its variables are known, and once
per scope.  Integers that come from memory are ordinary values and stay where they are used.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby

from whet.codegen.llvm.bindings import Bindings, Terms
from whet.codegen.llvm.function import FunctionWriter
from whet.codegen.llvm.operand import Operand, literal
from whet.codegen.llvm.support import require_code
from whet.core.dtypes import i64
from whet.ir.affine import Affine, interval
from whet.ir.expr import Axis, Binary, Call, Const, Expr, Var


class IndexWriter(ABC):
    """Writes index arithmetic at the place where its operands are known."""

    def __init__(self, function: FunctionWriter, bindings: Bindings) -> None:
        self.f, self.bindings = function, bindings
        self.levels: dict[Expr, int] = {}
        self.names: dict[Expr, Operand] = {}
        self.extents: dict[Expr, int] = {}
        self.lane_var: Var | None = None
        self.lanes = 0
        self._indices: dict[Expr, bool] = {}
        self._outermost: dict[Terms, int] = {}

    @abstractmethod
    def value(self, e: Expr) -> Operand:
        """The value of any expression, written where the text has arrived."""

    # ----------------------------------------------------------------------------- symbols
    @contextmanager
    def counter(self, var: Var, name: str, extent: int | None) -> Iterator[None]:
        """Within, `var` is the counter of the loop whose body was opened last."""
        self.levels[var] = self.here
        self.names[var] = Operand(name, i64)
        if extent is not None:
            self.extents[var] = extent
        self._outermost = {}
        yield
        del self.levels[var], self.names[var]
        self.extents.pop(var, None)
        self._outermost = {}

    @contextmanager
    def vector(self, var: Var, lanes: int) -> Iterator[None]:
        """Within, `var` stands for the lanes of vectors."""
        require_code(self.lane_var is None, "vector loops inside each other")
        self.lane_var, self.lanes = var, lanes
        self.extents[var] = lanes
        yield
        self.lane_var, self.lanes = None, 0
        del self.extents[var]

    def bind(self, var: Var, value: Operand, source: Expr) -> None:
        """From here on, `var` is the value of the expression `source`."""
        self._indices[var] = self.is_index(source)
        self.levels[var] = self.here
        self.names[var] = value

    @property
    def here(self) -> int:
        """The scope that is being written."""
        return len(self.f.scopes) - 1

    def level(self, e: Expr) -> int:
        """The outermost scope in which e can be written."""
        if not self.is_index(e):
            return self.here
        return max((self.levels.get(s, 0) for s in self.bindings.symbols(e)), default=0)

    def outermost(self, terms: Terms) -> int:
        """The outermost scope in which a sum of index numbers can be written."""
        found = self._outermost.get(terms)
        if found is None:
            found = max((self.level(atom) for atom, _ in terms), default=0)
            self._outermost[terms] = found
        return found

    def is_vector(self, e: Expr) -> bool:
        return self.lane_var is not None and self.lane_var in self.bindings.symbols(e)

    def is_index(self, e: Expr) -> bool:
        """True for arithmetic on variables that depends on no memory."""
        found = self._indices.get(e)
        if found is None:
            found = e.dtype is i64 and _is_index_node(e) and all(map(self.is_index, e.children()))
            self._indices[e] = found
        return found

    # ----------------------------------------------------------------------- index numbers
    def index(self, form: Affine) -> Operand:
        """A linear form as an i64, its parts written in the scopes where they are known.

        Parts are added from the outermost scope inwards, so that every partial sum is
        computed as rarely as possible.  The constant is left to the caller.
        """
        total: Operand | None = None
        key: tuple[tuple[Expr, int], ...] = ()
        # Values from memory come last: what is before them may be shared.
        ordered = sorted(form.terms, key=lambda t: (not self.is_index(t[0]), self.level(t[0])))
        for level, terms in groupby(ordered, key=lambda t: self.level(t[0])):
            for atom, factor in terms:
                fixed = self.is_index(atom)
                term = self.atom(atom, level)
                if factor != 1:
                    term = self._shared(fixed, ("scaled", atom, factor),
                                        f"mul nsw {term}, {factor}", level)  # fmt: skip
                key = (*key, (atom, factor))
                total = term if total is None else self._shared(
                    fixed, ("sum", key), f"add nsw {total}, {term.text}", level)  # fmt: skip
        return total if total is not None else literal(0, i64)

    def _shared(self, fixed: bool, key: object, instruction: str, level: int) -> Operand:
        """An instruction that is written once per scope, if its operands are fixed there."""
        if fixed:
            return self.f.once(key, instruction, i64, 0, level)
        return self.f.emit(instruction, i64)

    def atom(self, e: Expr, level: int) -> Operand:
        """A variable, or an integer operation that is not linear, at its own scope."""
        if e in self.names:
            return self.names[e]
        if not self.is_index(e):
            return self.value(e)
        match e:
            case Binary(op="floordiv" | "mod" as op, left=left, right=Const(value=by)):
                return self.quotient(op, left, int(by), level)
            case Call(name="min" | "max" as name, args=(a, b)):
                x, y = self.full_index(a), self.full_index(b)
                self.f.module.declare(f"llvm.s{name}.i64", "i64", "i64", "i64")
                text = f"call i64 @llvm.s{name}.i64(i64 {x.text}, i64 {y.text})"
                return self.f.once((e,), text, i64, 0, level)
        raise AssertionError(f"{e} is not known here")

    def full_index(self, e: Expr) -> Operand:
        """An index expression including its constant part."""
        form = self.bindings.form(e)
        if not form.terms:
            return literal(form.constant, i64)
        base = self.index(form)
        if not form.constant:
            return base
        level = max(self.level(a) for a, _ in form.terms)
        fixed = all(self.is_index(a) for a, _ in form.terms)
        return self._shared(fixed, ("plus", form.terms, form.constant),
                            f"add nsw {base}, {form.constant}", level)  # fmt: skip

    def quotient(self, op: str, left: Expr, by: int, level: int) -> Operand:
        """Floor division or modulus by a positive number."""
        a = self.full_index(left)
        bounds = interval(left, self.extents)
        key = (op, left, by)
        if bounds is not None and bounds[0] >= 0:
            opcode = "udiv" if op == "floordiv" else "urem"
            return self.f.once(key, f"{opcode} {a}, {by}", i64, 0, level)
        # Round toward minus infinity: the remainder is made positive first.
        remainder = self.f.once((*key, "r"), f"srem {a}, {by}", i64, 0, level)
        wrapped = self.f.once((*key, "w"), f"add nsw {remainder}, {by}", i64, 0, level)
        modulus = self.f.once((*key, "m"), f"urem {wrapped}, {by}", i64, 0, level)
        if op == "mod":
            return modulus
        exact = self.f.once((*key, "e"), f"sub nsw {a}, {modulus.text}", i64, 0, level)
        return self.f.once(key, f"sdiv exact {exact}, {by}", i64, 0, level)


def _is_index_node(e: Expr) -> bool:
    """True for the operations that `IndexWriter` knows, whatever they are applied to."""
    match e:
        case Const() | Var() | Axis() | Binary(op="add" | "sub") | Call(name="neg"):
            return True
        case Binary(op="mul", left=left, right=right):
            return isinstance(left, Const) or isinstance(right, Const)
        case Binary(op="floordiv" | "mod", right=Const(value=by)):
            return by > 0
        case Call(name="min" | "max", args=args):
            return len(args) == 2
    return False
