"""Check the shipped rules in plain NumPy at random shapes, without any code of the gates.

Usage: python tools/check_rules.py [--shapes N] [--seed N] [--rules FOLDER] [--workers N]

Nothing here knows how a rule was proved: shapes are drawn from small palettes of extents until
the operators' `infer` has types for both sides and the guards hold; then both sides are computed
by the operators' `reference` in double precision and compared.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from whet.core.dtypes import f32, f64
from whet.core.errors import WhetError
from whet.core.executor import LocalProcesses
from whet.core.types import Array, Shape, TensorType
from whet.graph.attributes import Item, Literal, Name, evaluate, walk
from whet.graph.terms import Apply, Number, Term, Variable, subterms, tensor_names
from whet.ops.base import Op, OutputType
from whet.superopt.rules.files import load_folder, shipped
from whet.superopt.rules.rule import Rule

PALETTES = ((1, 2, 4), (2, 4, 6), (1, 3, 6), (2, 3, 5), (1, 2, 3), (2, 4, 8), (3, 4, 7))
"""Extents of one draw: few, so that they meet; many are multiples of each other, for groups."""
NODES = 3000
"""Shapes of single tensors that one draw looks at."""
VARIANTS = 3
"""Further shapes that are tried for each one that was drawn: extents under other names."""
DRAWS = 120
"""Draws without anything new after which a rule has no more shapes."""
TOLERANCE = 1e-9

Shapes = dict[str, Shape]
Values = dict[str, Any]


@dataclass(frozen=True)
class Checked:
    """The result for one rule: how many shapes were tried, and where the sides differ."""

    name: str
    shapes: int
    grouped: int
    wrong: tuple[str, ...]


# ------------------------------------------------------------------------------------ evaluation
def types_of(term: Term, shapes: Shapes, values: Values) -> tuple[OutputType, ...] | None:
    """The types of the term's results; None if it has none."""
    match term:
        case Variable(name=name):
            return (TensorType(shapes[name], f32),)
        case Number():
            return (TensorType((), f32),)
        case Apply(inputs=inputs, result=result):
            given: list[OutputType] = []
            for inner in inputs:
                found = types_of(inner, shapes, values)
                if found is None:
                    return None
                given += found
            try:
                types = term.make(values, shapes).infer_types(
                    tuple(t for t in given if isinstance(t, TensorType))
                )
            except WhetError:
                return None
            if any(isinstance(t, TensorType) and 0 in t.shape for t in types):
                return None
            if result is None:
                return types
            return (types[result],) if result < len(types) else None


def results_of(
    term: Term, arrays: Mapping[str, Array], shapes: Shapes, values: Values
) -> tuple[Array, ...]:
    """The results of the term by the operators' NumPy meaning in double precision."""
    match term:
        case Variable(name=name):
            return (arrays[name],)
        case Number(value=value):
            return (np.asarray(value, np.float64),)
        case Apply(inputs=inputs, result=result):
            given = [a for i in inputs for a in results_of(i, arrays, shapes, values)]
            found = _precise(term.make(values, shapes)).reference(*given)
            made = found if isinstance(found, tuple) else (found,)
            return made if result is None else (made[result],)


def _precise(op: Op) -> Op:
    """The operator with constants in double precision."""
    single = not op.inputs and getattr(op, "dtype", None) == f32
    return dataclasses.replace(op, dtype=f64) if single else op  # type: ignore[type-var]


# ---------------------------------------------------------------------------------------- shapes
class Drawing:
    """Random shapes and attributes of one rule."""

    def __init__(self, rule: Rule, seed: int) -> None:
        self.rule, self.rng = rule, random.Random(seed)
        self.sides = (*rule.left, *rule.right)
        self.ranks = {v.name: v.rank for v in rule.variables}
        # Smaller terms first: they refuse early.
        terms = dict.fromkeys(t for side in self.sides for t in subterms(side))
        self.terms = [t for t in terms if isinstance(t, Apply)]
        self.order = list(dict.fromkeys(n for t in self.terms for n in tensor_names(t)))
        self.order += [n for n in self.ranks if n not in self.order]

    def shapes(self, count: int) -> Iterator[tuple[Shapes, Values]]:
        """Up to `count` different assignments that fit the rule."""
        seen: set[str] = set()
        fruitless = 0
        while len(seen) < count and fruitless < DRAWS:
            fruitless += 1
            palette = self.rng.choice(PALETTES)
            values = self._attributes(palette)
            drawn = self._draw(palette, values)
            if drawn is None:
                continue
            for shapes in (drawn, *(self._renamed(drawn) for _ in range(VARIANTS))):
                for chosen in (values, self._attributes(palette)):
                    key = f"{shapes} {chosen}"
                    if key not in seen and len(seen) < count and self.fits(shapes, chosen):
                        seen.add(key)
                        fruitless = 0
                        yield shapes, chosen

    def fits(self, shapes: Shapes, values: Values) -> bool:
        return self._guarded(shapes, values) and all(
            types_of(t, shapes, values) is not None for t in self.sides
        )

    def _guarded(self, shapes: Shapes, values: Values) -> bool:
        try:
            return all(evaluate(g, values, shapes) for g in self.rule.guards)
        except (ArithmeticError, LookupError, TypeError):
            return False

    def _draw(self, palette: Sequence[int], values: Values) -> Shapes | None:
        """Shapes for all tensors, one after the other; a tensor whose terms have no types with
        those before it is drawn again."""
        due: list[list[Apply]] = [[] for _ in self.order] or [[]]
        for term in self.terms:
            named = tensor_names(term)
            due[max((self.order.index(n) for n in named), default=0)].append(term)
        shapes: Shapes = {}
        nodes = 0

        def extend(depth: int) -> bool:
            nonlocal nodes
            if depth == len(self.order):
                return self._guarded(shapes, values)
            name = self.order[depth]
            every = list(itertools.product(palette, repeat=self.ranks[name]))
            self.rng.shuffle(every)
            for shape in every:
                nodes += 1
                if nodes > NODES:
                    return False
                shapes[name] = shape
                typed = all(types_of(t, shapes, values) is not None for t in due[depth])
                if typed and extend(depth + 1):
                    return True
                del shapes[name]
            return False

        return dict(shapes) if extend(0) else None

    def _renamed(self, shapes: Shapes) -> Shapes:
        """The shapes with another extent for each extent, or with some of them multiplied: by
        axis, or any."""
        rng = self.rng
        way = rng.randrange(3)
        if way == 0:
            factor = rng.choice((2, 3))
            return {n: tuple(d * rng.choice((1, 1, factor)) for d in s) for n, s in shapes.items()}
        if way == 1:
            other = {d: rng.choice((1, 2, 3, 4, 5, 6, 7)) for s in shapes.values() for d in s}
            return {n: tuple(other[d] for d in s) for n, s in shapes.items()}
        axes = {axis: rng.choice((1, 1, 2, 3)) for axis in range(6)}
        return {n: tuple(d * axes[k] for k, d in enumerate(s)) for n, s in shapes.items()}

    # --------------------------------------------------------------------------- attributes
    def _attributes(self, palette: Sequence[int]) -> Values:
        """Values for the attribute variables, by the attributes that they stand for."""
        found: Values = {}
        for term in self.terms:
            rank = max((self.ranks[n] for n in tensor_names(term)), default=4)
            for key, e in term.attributes:
                if isinstance(e, Name) and e.name not in found:
                    found[e.name] = self._attribute(term, key, rank, palette)
        for name, length in self._items():
            if len(found.get(name, ())) < length:
                found[name] = tuple(self.rng.choices(palette, k=length))
        return found

    def _attribute(self, term: Apply, key: str, rank: int, palette: Sequence[int]) -> Any:
        choices = self.rng.choices
        match key:
            case "strides" | "dilations":
                return tuple(choices((1, 1, 2), k=rank - 2))
            case "kernel":
                return tuple(choices((1, 2, 3, 3, 5), k=rank - 2))
            case "pads":
                padded = rank if term.op == "pad" else rank - 2
                return tuple(choices((0, 0, 1, 1, 2), k=2 * padded))
            case "output_padding" | "starts":
                return tuple(choices((0, 0, 1), k=rank - 2 if key == "output_padding" else rank))
            case "steps":
                return tuple(choices((1, 1, 2), k=rank))
            case "stops" | "shape":
                return tuple(choices(palette, k=rank))
            case "sizes":
                return tuple(choices((1, 2, 2, 3), k=self._parts(term)))
            case "perm":
                return tuple(self.rng.sample(range(rank), rank))
            case "axis":
                return self.rng.randrange(rank)
            case "ceil_mode" | "count_include_pad":
                return self.rng.random() < 0.5
        return self.rng.choice((1, 1, 2, 2, 3, 4, 6))

    def _parts(self, split: Apply) -> int:
        """The number of parts that the rule uses of this split."""
        return 1 + max(
            t.result or 0
            for t in self.terms
            if (t.op, t.inputs, t.attributes) == (split.op, split.inputs, split.attributes)
        )

    def _items(self) -> Iterator[tuple[str, int]]:
        """Attribute variables of which items are used, and how many they have at least."""
        for term in self.terms:
            for e in (e for _, a in term.attributes for e in walk(a)):
                match e:
                    case Item(value=Name(name=name), index=Literal(value=int(index))):
                        yield name, index + 1


# ----------------------------------------------------------------------------------------- check
def check_rule(rule: Rule, count: int, seed: int) -> Checked:
    """The rule at up to `count` shapes."""
    numbers = np.random.default_rng(seed)
    tried = grouped = 0
    wrong: list[str] = []
    drawing = Drawing(rule, seed)
    for shapes, values in drawing.shapes(count):
        tried += 1
        grouped += any(getattr(t.make(values, shapes), "groups", 1) > 1 for t in drawing.terms)
        problem = _difference(rule, shapes, values, numbers)
        if problem:
            wrong.append(f"{shapes} {values}: {problem}")
    return Checked(rule.name, tried, grouped, tuple(wrong))


def _difference(rule: Rule, shapes: Shapes, values: Values, numbers: np.random.Generator) -> str:
    """The difference of the sides on random numbers; empty if there is none."""
    arrays = {n: numbers.standard_normal(s) for n, s in shapes.items()}
    # An average over nothing is no number on either side, which is no news.
    with np.errstate(all="ignore"):
        left = [a for t in rule.left for a in results_of(t, arrays, shapes, values)]
        right = [a for t in rule.right for a in results_of(t, arrays, shapes, values)]
    if [a.shape for a in left] != [b.shape for b in right]:
        return f"shapes {[a.shape for a in left]} and {[b.shape for b in right]}"
    for n, (a, b) in enumerate(zip(left, right)):
        if not np.allclose(a, b, rtol=TOLERANCE, atol=TOLERANCE * 100, equal_nan=True):
            return f"output {n} differs by {np.nanmax(np.abs(a - b))}"
    return ""


def _task(task: tuple[Rule, int, int]) -> Checked:
    """For an executor."""
    return check_rule(*task)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", type=int, default=32, help="shapes per rule, at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rules", type=Path, help="rules other than whet's own")
    parser.add_argument("--workers", type=int, default=0, help="0: one per processor")
    arguments = parser.parse_args()
    rules = shipped() if arguments.rules is None else load_folder(arguments.rules)
    tasks = [(r, arguments.shapes, arguments.seed + n) for n, r in enumerate(rules)]
    checked = LocalProcesses(arguments.workers).map(_task, tasks)
    for result in checked:
        for problem in result.wrong:
            print(f"WRONG {result.name} at {problem}")
    few = [r.name for r in checked if r.shapes < 2]
    wrong = sum(len(r.wrong) for r in checked)
    print(
        f"{len(rules)} rules at {sum(r.shapes for r in checked)} shapes, "
        f"{sum(r.grouped for r in checked)} of them with groups: {wrong} violations"
    )
    print(f"rules with fewer than 2 shapes: {', '.join(few) or 'none'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
