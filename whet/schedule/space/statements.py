"""Loop nests as arrays: what features and models need to know of many candidates at once.

    for i in 4: for j in 8: y[i, j] = y[i, j] + a[i, 2] * 3.0          (one candidate)
        ->
    Statement(loops [[4, 8]], marks [[0, 0]], accesses y (read and written), a
              a: indices [[[1, 0], [0, 0]]], steps [[stride of i, 1]] ...)

A statement describes the same store in many candidates, one row each; loops that some candidates
do not have are of extent 1.  `program_nests` reads the description off one lowered program; a
sketch that knows its loops in closed form gives the same for a whole population (`nests`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from whet.core.types import Array
from whet.ir.affine import free_symbols, substitute
from whet.ir.bounds import Interval, bounds
from whet.ir.expr import Binary, Call, Cast, Const, Expr, Read, Select, Var, as_expr
from whet.ir.functions import SLOTS
from whet.ir.program import (
    Buffer,
    If,
    Let,
    Loop,
    LoopKind,
    Program,
    Stmt,
    Store,
    While,
)
from whet.ir.tensor import Tensor

MARKS: dict[LoopKind, int] = {"serial": 0, "parallel": 1, "vector": 2, "unroll": 3}
"""What `Statement.marks` holds for each kind of loop."""

OPERATIONS = (
    "float_mad", "float_addsub", "float_mul", "float_div", "float_compare", "float_math",
    "float_other", "int_mad", "int_addsub", "int_mul", "int_div", "int_compare", "int_math",
    "int_other", "bool", "select",
)  # fmt: skip
"""What a statement's operations are counted by (Ansor, appendix B)."""
OPERATION_SLOTS: dict[str, float] = {
    "float_div": SLOTS["div"], "int_div": 20, "float_math": SLOTS["erf"], "int_math": SLOTS["erf"],
    "float_other": 2,
}  # fmt: skip
"""What one of a kind costs per vector, in multiply-adds, where it is not one.

Functions are taken to cost what `erf` does, and integers to be divided by constants for the most
part, which takes less than the operator itself.
"""

_ARITHMETIC = {"add": "addsub", "sub": "addsub", "mul": "mul", "div": "div", "floordiv": "div",
               "mod": "div", "truncdiv": "div", "truncmod": "div", "min": "compare",
               "max": "compare", "neg": "addsub", "abs": "other", "sign": "other", "floor": "other",
               "ceil": "other", "round": "other", "trunc": "other"}  # fmt: skip
_COMPARISONS = frozenset({"lt", "le", "gt", "ge", "eq", "ne", "isnan", "isinf"})
_LOGIC = frozenset({"and", "or", "not", "bitand", "bitor", "bitxor", "invert"})


@dataclass(frozen=True, eq=False)
class Access:
    """One place in the text of a statement that reads or writes a buffer.

    Element (of candidate n) in dimension d moves by `indices[n, l, d]` when loop l makes one step;
    neighbours in that dimension lie `steps[n, d]` elements apart.
    """

    buffer: str
    element_bytes: int
    is_write: bool
    indices: Array
    """[n, depth, rank]"""
    steps: Array
    """[n, rank]"""
    buffer_bytes: Array
    """[n]: the size of the whole buffer."""
    in_registers: bool = False
    """True for registers, which no cache sees."""

    @property
    def strides(self) -> Array:
        """[n, depth]: elements that the address moves when a loop makes one step."""
        strides: Array = np.einsum("nld,nd->nl", self.indices, self.steps)
        return strides


@dataclass(frozen=True, eq=False)
class Statement:
    """A store with the loops around it, outermost first, in n candidates of a population."""

    name: str
    """The buffer that it writes."""
    rows: Array
    """[n]: which candidates of the population are described."""
    loops: Array
    """[n, depth]: extents; 1 where a candidate has no such loop."""
    marks: Array
    """[n, depth]: one of MARKS."""
    reduces: tuple[bool, ...]
    """[depth]: whether the loop combines into the same element."""
    accesses: tuple[Access, ...]
    """Reads in the order of the text, then the store itself."""
    operations: Mapping[str, float]
    """Operations of one execution, by the names of OPERATIONS; those of indices not counted."""
    guarded: bool = False
    """Whether it stands under a condition."""

    @property
    def depth(self) -> int:
        return int(self.loops.shape[1])

    @property
    def unroll(self) -> Array:
        """[n]: how many copies of the statement code generation writes."""
        copies: Array = np.where(self.marks == MARKS["unroll"], self.loops, 1).prod(axis=1)
        return copies


# ------------------------------------------------------------------------------- one program
def program_nests(program: Program) -> tuple[Statement, ...]:
    """The statements of one program, in the order of its text."""
    found: list[Statement] = []
    _visit(program.body, (), {}, False, found)
    return tuple(found)


def _visit(
    block: Sequence[Stmt],
    around: tuple[Loop, ...],
    known: Mapping[Expr, Expr],
    guarded: bool,
    found: list[Statement],
) -> None:
    for stmt in block:
        inside, values, under = around, known, guarded
        match stmt:
            case Store():
                found.append(_statement(stmt, around, known, guarded))
            case Loop():
                inside = (*around, stmt)
            case Let(var=var, value=value):
                values = {**known, var: substitute(value, known)}
            case If() | While():
                under = True
        for inner in stmt.blocks:
            _visit(inner, inside, values, under, found)


def _statement(
    store: Store, around: tuple[Loop, ...], known: Mapping[Expr, Expr], guarded: bool
) -> Statement:
    ranges: dict[Expr, Interval] = {}
    extents: list[int] = []
    for loop in around:
        extent = max(0, bounds(substitute(loop.extent, known), ranges).high)
        extents.append(extent)
        ranges[loop.var] = Interval(0, max(0, extent - 1))
    places: list[tuple[Tensor, tuple[Expr, ...], bool]] = [
        (r.tensor, r.indices, False) for r in reads_of(store)
    ]
    places.append((store.buffer, store.indices, True))
    variables = [loop.var for loop in around]
    accesses = tuple(
        _access(t, [substitute(i, known) for i in at], write, variables) for t, at, write in places
    )
    written = {s for i in store.indices for s in free_symbols(substitute(i, known))}
    return Statement(
        store.buffer.name,
        np.zeros(1, np.int64),
        np.array([extents], np.int64).reshape(1, len(around)),
        np.array([[MARKS[x.kind] for x in around]], np.int8).reshape(1, len(around)),
        tuple(x.var not in written for x in around),
        accesses,
        operations_of(store),
        guarded,
    )


def _access(
    tensor: Tensor, indices: Sequence[Expr], is_write: bool, variables: Sequence[Var]
) -> Access:
    buffer = tensor
    if not isinstance(buffer, Buffer):
        buffer = Buffer(tensor.name, tensor.shape, tensor.dtype)
    rank = len(indices)
    moves = np.array([[step_of(i, v) for i in indices] for v in variables], np.int64)
    return Access(
        buffer.name,
        buffer.dtype.itemsize,
        is_write,
        moves.reshape(1, len(variables), rank),
        np.array([buffer.element_strides], np.int64).reshape(1, rank),
        np.array([buffer.type.nbytes], np.int64),
        buffer.scope == "register",
    )


def step_of(index: Expr, var: Var) -> int:
    """The step of an index at the first step of a loop, other loops being at their start."""
    if var not in free_symbols(index):
        return 0
    first, second = (_at_start(substitute(index, {var: as_expr(n)})) for n in (0, 1))
    return second - first


def _at_start(index: Expr) -> int:
    """The index with all variables 0; what is read from memory counts as the least it can be."""
    zeros: dict[Expr, Interval] = {s: Interval(0, 0) for s in free_symbols(index)}
    return bounds(index, zeros).low


def reads_of(store: Store) -> list[Read]:
    """The distinct reads of a store's value, in the order of the text."""
    return [x for x in _value_terms(store.value) if isinstance(x, Read)]


def _value_terms(value: Expr) -> list[Expr]:
    """The distinct parts of a value, without what computes indices."""
    seen: dict[Expr, None] = {}
    stack = [value]
    while stack:
        e = stack.pop()
        if e in seen:
            continue
        seen[e] = None
        if not isinstance(e, Read):
            stack.extend(reversed(e.children()))
    return list(seen)


def operations_of(store: Store) -> dict[str, float]:
    """Operations of each kind in one execution; a product that is added is one `mad`.

    y + a * b - c   ->   float_mad 1, float_addsub 1
    """
    count: dict[str, float] = {}
    terms = _value_terms(store.value)
    fused: set[Expr] = set()
    for e in terms:
        kind = _operation(e)
        if kind is None:
            continue
        if isinstance(e, Binary) and e.op in ("add", "sub"):
            product = next((x for x in (e.left, e.right) if isinstance(x, Binary)
                            and x.op == "mul" and x not in fused), None)  # fmt: skip
            if product is not None:
                fused.add(product)
                kind = kind.replace("addsub", "mad")
        if e not in fused:
            count[kind] = count.get(kind, 0.0) + 1.0
    return count


def _operation(e: Expr) -> str | None:
    """The kind that an expression's own operation counts as."""
    match e:
        case Select():
            return "select"
        case Binary(op=op, left=left):
            return _named(op, e, left)
        case Call(name=name, args=args):
            return _named(name, e, args[0])
        case Cast(value=value) if not isinstance(value, (Const, Var)):
            return f"{'float' if e.dtype.is_float else 'int'}_other"
    return None


def _named(name: str, e: Expr, operand: Expr) -> str:
    if name in _LOGIC:
        return "bool"
    number = "float" if (e.dtype.is_float or operand.dtype.is_float) else "int"
    if name in _COMPARISONS:
        return f"{number}_compare"
    return f"{number}_{_ARITHMETIC.get(name, 'math')}"
