"""From an equation at particular extents to a rule for all extents.

Extents and attributes of the terms become expressions: `dim(w, 0)`, or variables.  Which extents
must be equal is read off the operators' tensor expressions (axes that are read at one position),
so in

    add(conv(x, w, ...), conv(x, v, ...)) = conv(x, add(w, enlarge(v, kernel=[3, 3])), ...)

the kernel becomes [dim(w, 2), dim(w, 3)].  Whether the general rule holds is for the gates to
say: what is found here is a claim.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from whet.core.dtypes import f32
from whet.core.errors import OperatorError
from whet.core.types import Shape, TensorType
from whet.ops.base import Op, show_attribute
from whet.ops.movement import Concat, Split
from whet.superopt.generate.kinds import Link, axis_links, contracted_links
from whet.superopt.prune.terms import Found, Lexicon, Term, variables
from whet.superopt.rules.rule import Rule, Variable

LITERAL = frozenset(
    {"axis", "axes", "perm", "keepdims", "count_include_pad", "ceil_mode", "approximate"}
)
"""Attributes that are part of what the operator is."""
LETTERS = {"strides": "s", "pads": "p", "dilations": "d", "kernel": "k", "groups": "g",
           "merged": "m", "channels": "c", "size": "n", "extents": "e", "shape": "t"}  # fmt: skip
NAMES = {"activation": "xyzuv", "weight": "wabcf"}


UNKNOWN = "?"


# ------------------------------------------------------------------------------------- extents
@dataclass(eq=False)
class Extent:
    """An extent as a node of a union: `text` names it, `parts` are those of a concat."""

    value: int
    text: str
    parts: tuple[Extent, Extent] | None = None
    same: Extent | None = None

    def root(self) -> Extent:
        node = self
        while node.same is not None:
            node = node.same
        return node

    def __str__(self) -> str:
        found = self.root()
        if found.parts is not None:
            return f"{found.parts[0]} + {found.parts[1]}"
        return found.text if found.text != UNKNOWN else str(found.value)


def _weight(e: Extent) -> int:
    """Which of two equal extents names both: a tensor's, then an attribute's, then unknown."""
    return 2 if e.text.startswith("dim(") else 1 if e.text != UNKNOWN else 0


def _unite(a: Extent, b: Extent) -> None:
    """Make two extents one; a sum is kept before a single one."""
    a, b = a.root(), b.root()
    if a is b or a.value != b.value:
        return
    if a.parts is not None and b.parts is not None:
        if a.parts[0].value == b.parts[0].value:
            _unite(a.parts[0], b.parts[0])
            _unite(a.parts[1], b.parts[1])
            b.same = a
        return
    if b.parts is not None or (a.parts is None and _weight(a) < _weight(b)):
        a, b = b, a
    b.same = a


@cache
def _attribute_axes(op: Op, shapes: tuple[Shape, ...]) -> tuple[tuple[str, int, int], ...]:
    """(attribute, item, axis) where an extent of the first output is an item of an attribute:
    where the extent follows when the item grows."""
    types = tuple(TensorType(s, f32) for s in shapes)
    before = _first_shape(op, types)
    found = []
    for field in dataclasses.fields(op):  # type: ignore[arg-type]
        value = getattr(op, field.name)
        if field.name in LITERAL:
            continue
        items = value if isinstance(value, tuple) else (value,)
        for n, item in enumerate(items):
            if not isinstance(item, int) or isinstance(item, bool):
                continue
            grown = (*items[:n], item + 2, *items[n + 1 :])
            changed = grown if isinstance(value, tuple) else grown[0]
            try:
                after = _first_shape(dataclasses.replace(op, **{field.name: changed}), types)  # type: ignore[type-var]
            except OperatorError:
                continue
            found += [
                (field.name, n, axis)
                for axis, (x, y) in enumerate(zip(before, after))
                if (x, y) == (item, item + 2)
            ]
    return tuple(found)


def _first_shape(op: Op, types: tuple[TensorType, ...]) -> Shape:
    first = op.infer_types(types)[0]
    assert isinstance(first, TensorType)
    return first.shape


WIDE = 7


@cache
def _links(
    op: Op, shapes: tuple[Shape, ...], result: Shape
) -> tuple[tuple[tuple[Link, ...], ...], ...]:
    """The links of the outputs' axes.

    An axis of extent 1 is broadcast, so its links show only when it is wider, if it may be.
    """
    wide = tuple(tuple(WIDE if d == 1 else d for d in s) for s in shapes)
    if wide == shapes:
        return axis_links(op, shapes)
    try:
        made = _first_shape(op, tuple(TensorType(s, f32) for s in wide))
    except OperatorError:
        return axis_links(op, shapes)
    same = made == tuple(WIDE if d == 1 else d for d in result)
    return axis_links(op, wide if same else shapes)


class _Writer:
    """Writes the terms of one equation with general attributes."""

    def __init__(
        self, found: Found, lexicon: Lexicon, names: Mapping[int, str], fixed: tuple[str, ...]
    ) -> None:
        self.lexicon, self.names, self.fixed = lexicon, names, fixed
        self.extents: dict[Term, tuple[Extent, ...]] = {}
        self.items: dict[tuple[Term, str, int], Extent] = {}
        self.free: dict[tuple[str, Any], str] = {}
        for v, kind in found.kinds.items():
            self.extents[v] = tuple(
                Extent(d, f"dim({names[v]}, {n})") for n, d in enumerate(kind.shape)
            )
        for left, right in zip(found.left, found.right):
            for a, b in zip(self.extent(left), self.extent(right)):
                _unite(a, b)
        ops = [lexicon.ops[t[0]] for t in self.extents if not isinstance(t, int)]
        self.one_padding = len({op.pads for op in ops if hasattr(op, "pads")}) <= 1

    # ------------------------------------------------------------------------------ extents
    def shape(self, term: Term) -> Shape:
        return tuple(e.value for e in self.extent(term))

    def extent(self, term: Term) -> tuple[Extent, ...]:
        """The extents of the term, united with those of others wherever the operators say so."""
        if term not in self.extents:
            self.extents[term] = self._extent(term)
        return self.extents[term]

    def _extent(self, term: Term) -> tuple[Extent, ...]:
        op, operands = self.lexicon.ops[term[0]], term[2:]
        inner = [self.extent(t) for t in operands]
        shapes = tuple(self.shape(t) for t in operands)
        types = op.infer_types(tuple(TensorType(s, f32) for s in shapes))
        output = max(term[1], 0)
        result = types[output]
        assert isinstance(result, TensorType)
        if isinstance(op, Split):
            whole = inner[0][op.axis].root()
            parts = whole.parts
            part = parts[output] if parts is not None else Extent(result.shape[op.axis], UNKNOWN)
            return (*inner[0][: op.axis], part, *inner[0][op.axis + 1 :])
        for links in contracted_links(op, shapes):
            for i, a in links[1:]:
                _unite(inner[links[0][0]][links[0][1]], inner[i][a])
        made = []
        for axis, links in enumerate(_links(op, shapes, result.shape)[output]):
            if isinstance(op, Concat) and axis == op.axis:
                left, right = (e[axis] for e in inner)
                made.append(Extent(result.shape[axis], UNKNOWN, (left, right)))
                continue
            for i, a in links[1:]:
                _unite(inner[links[0][0]][links[0][1]], inner[i][a])
            same = links and inner[links[0][0]][links[0][1]].value == result.shape[axis]
            made.append(
                inner[links[0][0]][links[0][1]] if same else Extent(result.shape[axis], UNKNOWN)
            )
        for name, n, axis in _attribute_axes(op, shapes):
            value = getattr(op, name)
            letter = self._variable(name, value)
            text = f"{letter}[{n}]" if isinstance(value, tuple) else letter
            made[axis] = self.items.setdefault((term, name, n), Extent(result.shape[axis], text))
        return tuple(made)

    # ------------------------------------------------------------------------------- writing
    def text(self, term: Term) -> str:
        if isinstance(term, int):
            return self.names[term]
        op = self.lexicon.ops[term[0]]
        shown = [self.text(t) for t in term[2:]]
        names = [f.name for f in dataclasses.fields(op)]
        shown += [f"{n}={self._attribute(term, op, n)}" for n in names if n != "dtype"]
        picked = "" if term[1] < 0 else f"[{term[1]}]"
        return f"{op.name}({', '.join(shown)}){picked}"

    def _attribute(self, term: Term, op: Op, name: str) -> str:
        value = getattr(op, name)
        if name in LITERAL or isinstance(value, (bool, float, str)):
            return show_attribute(value)
        if isinstance(op, Split):
            parts = self.extent(term[2])[op.axis].root().parts
            return f"[{parts[0]}, {parts[1]}]" if parts is not None else show_attribute(value)
        if name == "groups":
            return self._groups(term, value)
        if name == "merged" and value == op.groups:  # type: ignore[attr-defined]
            return self._attribute(term, op, "groups")
        if name == "pads" and (self.fixed or not self.one_padding):
            return self._half_kernel(term, op)
        if name in self.fixed:
            return show_attribute(value)
        items = value if isinstance(value, tuple) else (value,)
        letter = self._variable(name, value)
        known = [self.items.get((term, name, n)) for n in range(len(items))]
        own = [f"{letter}[{n}]" if isinstance(value, tuple) else letter for n in range(len(items))]
        texts = [o if e is None else str(e) for e, o in zip(known, own)]
        if texts == own:
            return letter
        return f"[{', '.join(texts)}]" if isinstance(value, tuple) else texts[0]

    def _variable(self, name: str, value: Any) -> str:
        """A variable for the attribute, the same for the same value."""
        if (name, value) not in self.free:
            letter = LETTERS.get(name, name)
            taken = sum(1 for known, _ in self.free if known == name)
            self.free[name, value] = letter if not taken else f"{letter}{taken + 1}"
        return self.free[name, value]

    def _groups(self, term: Term, value: int) -> str:
        """1 as it is; all channels, for constant filters (which have one channel); twice those of
        one half, for convolutions side by side; a quotient of known groups and what was merged;
        or a variable."""
        if value == 1:
            return "1"
        if len(term) == 4 and not isinstance(term[3], int) and len(term[3]) == 2:
            return str(self.extent(term[2])[1])
        if self._side_by_side(term) and value % 2 == 0:
            return "2" if value == 2 else f"2 * {self._variable('groups', value // 2)}"
        if ("groups", value) not in self.free:
            for (name, whole), letter in self.free.items():
                for (other, merged), by in self.free.items():
                    if (name, other) == ("groups", "merged") and whole == value * merged:
                        return f"{letter} // {by}"
        return self._variable("groups", value)

    def _side_by_side(self, term: Term) -> bool:
        """Whether images and filters are both joined, channel after channel, at the middle."""
        if len(term) != 4:
            return False
        channels, filters = self.extent(term[2])[1].root(), self.extent(term[3])[0].root()
        return (
            filters.parts is not None
            and channels.parts is not None
            and (channels.parts[0].value == channels.parts[1].value)
        )

    def _half_kernel(self, term: Term, op: Op) -> str:
        """Paddings that differ follow their kernels."""
        if hasattr(op, "kernel"):
            kernel = self._attribute(term, op, "kernel")
            half = [f"({kernel}[{n}] - 1) // 2" for n in range(len(op.kernel))]
        else:
            half = [f"({_grouped(str(e))} - 1) // 2" for e in self.extent(term[3])[2:]]
        return f"[{', '.join([*half, *half])}]"


def _grouped(text: str) -> str:
    return f"({text})" if " + " in text else text


def generalize(found: Found, lexicon: Lexicon, name: str) -> tuple[Rule, ...]:
    """The rules that the equation suggests, without certificates, the most general first.

    In the first one strides, paddings and dilations are variables; in the next one dilations
    are those at which the equation was found, and paddings are half the kernels; in the last
    one strides are fixed too.
    """
    order = variables(*found.left, *found.right)
    taken: dict[str, int] = {}
    names: dict[int, str] = {}
    for v in order:
        role = found.kinds[v].role
        n = taken.get(role, 0)
        taken[role] = n + 1
        letters = NAMES[role]
        names[v] = letters[n] if n < len(letters) else f"{letters[0]}{n}"
    declared = tuple(
        Variable(names[v], len(found.kinds[v].shape), found.kinds[v].role) for v in order
    )
    rules = []
    for fixed in ((), ("dilations",), ("dilations", "strides")):
        writer = _Writer(found, lexicon, names, fixed)
        lhs = tuple(map(writer.text, found.left))
        rhs = tuple(map(writer.text, found.right))
        rules.append(Rule(name, declared, lhs, rhs))
    return tuple(dict.fromkeys(rules))
