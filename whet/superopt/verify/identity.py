"""Gate (b): polynomial identity testing on shapes that are chosen to break a claim.

Both sides are evaluated on random residues at many assignments.  Where a claim uses the order
of the reals (relu, max) beyond the laws of a lattice, or a law of a function such as exp, the
field cannot decide: then the operators' NumPy meaning does, on small integers with signs drawn
both ways, or on reals with a tolerance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from whet.core.dtypes import f32
from whet.core.types import Array, TensorType
from whet.graph.graph import Graph, Input, Value, make_input
from whet.graph.interpret import interpret
from whet.graph.terms import Term, build_term
from whet.superopt.verify.assign import Assignment, Claim, assignments
from whet.superopt.verify.evaluate import (
    DivisionByZero,
    NoMeaning,
    evaluate_values,
    is_opaque,
)
from whet.superopt.verify.field import PRIME, Field

SHAPES = 16
"""Assignments that a claim must survive."""
FIRST = 3
DRAWS = 2
SIGN_SHARES = (0.1, 0.5, 0.9)
"""How many of the small integers are negative, draw by draw."""

Mode = Literal["field", "order"]


@dataclass(frozen=True)
class Counterexample:
    """Where the sides of a claim differ."""

    at: Assignment
    output: int
    problem: str

    def __str__(self) -> str:
        return f"output {self.output} at {self.at}: {self.problem}"


@dataclass(frozen=True)
class Verdict:
    """What the gate found: `passed`, and if not why; `at` are the assignments it tried."""

    passed: bool
    at: tuple[Assignment, ...]
    counterexample: Counterexample | None = None
    problem: str = ""
    mode: Mode = "field"


def check_identity(claim: Claim, seed: int, shapes: int = SHAPES) -> Verdict:
    """The verdict on a claim; the same for the same claim and seed."""
    # Most false claims fail at once, so a few shapes are tried before many are looked for.
    first = _check(claim, assignments(claim, min(FIRST, shapes), seed), seed)
    if not first.passed:
        return first
    tried = assignments(claim, shapes, seed)
    if len(tried) < min(shapes, 2):
        return Verdict(False, tried, problem=f"only {len(tried)} shapes fit both sides")
    return _check(claim, tried, seed)


def _check(claim: Claim, tried: tuple[Assignment, ...], seed: int) -> Verdict:
    if not tried:
        return Verdict(False, tried, problem="only 0 shapes fit both sides")
    mode: Mode = "field"
    for n, at in enumerate(tried):
        try:
            found, mode_here = _differ(claim, at, np.random.default_rng((seed, n)))
        except NoMeaning as error:
            return Verdict(False, tried[:n], problem=f"no residues: {error}")
        if found is not None:
            return Verdict(False, tried[: n + 1], found, mode=mode_here)
        mode = "order" if mode_here == "order" else mode
    return Verdict(True, tried, mode=mode)


def _differ(
    claim: Claim, at: Assignment, rng: np.random.Generator
) -> tuple[Counterexample | None, Mode]:
    sides = Sides(claim, at)
    wrong = sides.types_differ()
    if wrong is not None:
        return wrong, "field"
    for _ in range(DRAWS):
        found = sides.residues_differ(rng)
        if found is not None:
            # Where order and opaque functions matter, the operators' own meaning decides.
            return (sides.numbers_differ(rng), "order") if sides.ordered else (found, "field")
    return None, "field"


class Sides:
    """Both sides of a claim as graph values at one assignment."""

    def __init__(self, claim: Claim, at: Assignment) -> None:
        self.at = at
        shapes, self.attributes = dict(at.shapes), dict(at.attributes)
        self.inputs: dict[str, Input] = {
            n: make_input(n, TensorType(s, f32)) for n, s in shapes.items()
        }
        self.left = self._values(claim.left)
        self.right = self._values(claim.right)

    def _values(self, terms: Sequence[Term]) -> list[Value]:
        made: list[Value] = []
        for term in terms:
            made += build_term(term, self.inputs, self.attributes)
        return made

    @property
    def ordered(self) -> bool:
        """Whether the field's word is not final (see `is_opaque`)."""
        return is_opaque([*self.left, *self.right])

    def _graph(self) -> Graph:
        values = (*self.left, *self.right)
        return Graph(
            tuple(self.inputs.values()), values, tuple(f"y{n}" for n in range(len(values)))
        )

    def types_differ(self) -> Counterexample | None:
        if len(self.left) != len(self.right):
            return Counterexample(self.at, 0, f"{len(self.left)} and {len(self.right)} outputs")
        for n, (a, b) in enumerate(zip(self.left, self.right)):
            if a.type != b.type:
                return Counterexample(self.at, n, f"types {a.type} and {b.type}")
        return None

    def residues_differ(self, rng: np.random.Generator) -> Counterexample | None:
        for _ in range(8):
            arrays: dict[Value, Array] = {
                v: rng.integers(0, PRIME, v.tensor_type.shape) for v in self.inputs.values()
            }
            try:
                results = evaluate_values([*self.left, *self.right], arrays, Field())
            except DivisionByZero:
                continue
            return self._compare(results, lambda a, b: a == b)
        raise NoMeaning("it divides by zero")

    def numbers_differ(self, rng: np.random.Generator) -> Counterexample | None:
        """By the operators' NumPy meaning in double precision, which is exact on small integers."""
        graph = self._graph()
        for share in SIGN_SHARES:
            arrays = []
            for value in graph.inputs:
                size = rng.integers(1, 5, value.tensor_type.shape).astype(np.float64)
                negative = rng.random(size.shape) < share
                arrays.append(np.where(negative, -size, size))
            results = list(interpret(graph, arrays, precise=True))
            found = self._compare(results, _close)
            if found is not None:
                return found
        return None

    def _compare(
        self, results: list[Array], same: Callable[[Array, Array], Array]
    ) -> Counterexample | None:
        half = len(self.left)
        for n, (a, b) in enumerate(zip(results[:half], results[half:])):
            agree = np.broadcast_to(same(a, b), np.shape(a))
            if not agree.all():
                where = tuple(int(i) for i in np.argwhere(~agree)[0])
                values = f"{np.asarray(a)[where]} and {np.asarray(b)[where]}"
                return Counterexample(self.at, n, f"element {list(where)} is {values}")
        return None


def _close(a: Array, b: Array) -> Array:
    """Equal up to rounding: constants such as 1 / sqrt(2) are given in single precision."""
    same = np.isclose(a, b, rtol=1e-6, atol=1e-6, equal_nan=True)
    return np.asarray(same | (a == b))
