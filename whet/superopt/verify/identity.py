"""Gate (b): polynomial identity testing on shapes that are chosen to break a claim.

Both sides are evaluated on random residues at many assignments.  Where a claim uses the order
of the reals (relu, max) beyond the laws of a lattice, or a law of a function such as exp, the
field cannot decide: then the operators' NumPy meaning does, on small integers with signs drawn
both ways, or on reals with a tolerance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from whet.core.dtypes import f32
from whet.core.types import Array, TensorType
from whet.graph.graph import Graph, make_input
from whet.graph.interpret import interpret
from whet.graph.terms import build_term
from whet.superopt.verify.assign import Stream, affordable
from whet.superopt.verify.claims import Assignment, Claim
from whet.superopt.verify.demands import violations
from whet.superopt.verify.evaluate import DivisionByZero, NoMeaning, evaluate_typed, is_opaque
from whet.superopt.verify.field import PRIME, Field
from whet.superopt.verify.steps import Typed, typed

SHAPES = 16
"""Assignments that a claim must survive."""
FIRST = 3
DRAWS = 2
SIGN_SHARES = (0.1, 0.5, 0.9)
"""How many of the small integers are negative, draw by draw."""

Mode = Literal["field", "order"]


@dataclass(frozen=True)
class Counterexample:
    """The place where the sides of a claim differ."""

    at: Assignment
    output: int
    problem: str

    def __str__(self) -> str:
        return f"output {self.output} at {self.at}: {self.problem}"


@dataclass(frozen=True)
class Verdict:
    """The gate's verdict: `passed`, and if not why; `at` are the assignments it tried."""

    passed: bool
    at: tuple[Assignment, ...]
    counterexample: Counterexample | None = None
    problem: str = ""
    mode: Mode = "field"


def check_identity(claim: Claim, seed: int, shapes: int = SHAPES) -> Verdict:
    """The verdict on a claim; the same for the same claim and seed."""
    # Most false claims fail at once, so a few shapes are tried before many are looked for.
    stream = Stream(claim, seed)
    few = stream.spread(min(FIRST, shapes))
    first = _check(claim, few, seed)
    if not first.passed:
        return first
    tried = stream.spread(shapes)
    if len(tried) < min(shapes, 2):
        return Verdict(False, tried, problem=f"only {len(tried)} shapes fit both sides")
    rest = _check(claim, tuple(at for at in tried if at not in few) or few, seed + 1)
    if not rest.passed:
        return rest
    seen = tuple(dict.fromkeys((*few, *tried)))
    # What seemed to be demanded by types and is not: the hardest shapes.
    against = tuple(at for at in violations(claim, seen) if affordable(claim, at))
    last = _check(claim, against, seed + 2) if against else rest
    if not last.passed:
        return last
    mode: Mode = "order" if "order" in (first.mode, rest.mode, last.mode) else "field"
    return Verdict(True, (*seen, *against), mode=mode)


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
    draws = [False] * DRAWS + [True] * sides.can_be_aliased
    for aliased in draws:
        try:
            found = sides.residues_differ(rng, aliased)
        except DivisionByZero:
            # An average over nothing: no residue, but NumPy says what comes out.
            return sides.numbers_differ(rng), "order"
        if found is not None:
            # Where order and opaque functions matter, the operators' own meaning decides.
            return (sides.numbers_differ(rng), "order") if sides.ordered else (found, "field")
    return None, "field"


class Sides:
    """Both sides of a claim at one assignment."""

    def __init__(self, claim: Claim, at: Assignment) -> None:
        self.claim, self.at = claim, at
        found = typed(claim.sides, dict(at.attributes), dict(at.shapes))
        assert found is not None, at
        self.typed: Typed = found
        types = [list(found.types[n]) for n in found.steps.outputs]
        self.left = [t for some in types[: len(claim.left)] for t in some]
        self.right = [t for some in types[len(claim.left) :] for t in some]

    @property
    def ordered(self) -> bool:
        """Whether the field's word is not final (see `is_opaque`)."""
        return is_opaque(self.typed)

    @property
    def can_be_aliased(self) -> bool:
        """Whether some inputs have one shape, so that they may be one tensor."""
        shapes = [s for _, s in self.at.shapes]
        return len(set(shapes)) < len(shapes)

    def types_differ(self) -> Counterexample | None:
        if len(self.left) != len(self.right):
            return Counterexample(self.at, 0, f"{len(self.left)} and {len(self.right)} outputs")
        for n, (a, b) in enumerate(zip(self.left, self.right)):
            if a != b:
                return Counterexample(self.at, n, f"types {a} and {b}")
        return None

    def residues_differ(
        self, rng: np.random.Generator, aliased: bool = False
    ) -> Counterexample | None:
        """On random residues; if `aliased`, inputs of one shape are one tensor."""
        for _ in range(8):
            arrays = {n: rng.integers(0, PRIME, s) for n, s in self.at.shapes}
            if aliased:
                by_shape = {s: arrays[n] for n, s in self.at.shapes}
                arrays = {n: by_shape[s] for n, s in self.at.shapes}
            try:
                results = evaluate_typed(self.typed, arrays, Field())
            except DivisionByZero:
                continue
            return self._compare(results, lambda a, b: a == b)
        raise DivisionByZero

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

    def _graph(self) -> Graph:
        inputs = {n: make_input(n, TensorType(s, f32)) for n, s in self.at.shapes}
        attributes = dict(self.at.attributes)
        values = tuple(v for t in self.claim.sides for v in build_term(t, inputs, attributes))
        names = tuple(f"y{n}" for n in range(len(values)))
        return Graph(tuple(inputs.values()), values, names)

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
