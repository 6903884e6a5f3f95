"""Gate (c): both sides as polynomials in the elements of the inputs, at small shapes.

Where the normal forms are equal, the sides agree for all values at that shape.  Where they
differ and no atom is opaque, the claim is false there; with opaque atoms (relu, exp) a
difference says only that this gate cannot tell.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import numpy as np

from whet.superopt.verify.assign import Stream
from whet.superopt.verify.claims import Assignment, Claim
from whet.superopt.verify.demands import violations
from whet.superopt.verify.evaluate import DivisionByZero, NoMeaning, evaluate_typed
from whet.superopt.verify.identity import Counterexample, Sides
from whet.superopt.verify.outer import arguments
from whet.superopt.verify.polynomial import Polynomial, Polynomials

SHAPES = 24
FIRST = 3
POOLS: tuple[tuple[int, ...], ...] = ((1, 2, 3), (2, 3), (2,), (1, 2), (3, 2))
LARGEST = 3
"""The largest extent of an input."""
MOST_POINTS = 1 << 16
"""Points of an evaluation on polynomials."""
ELEMENTS = 256
"""Elements of all inputs together where equations between extents are violated."""


@dataclass(frozen=True)
class Verdict:
    """`passed`; else a counterexample, or why the gate cannot tell."""

    passed: bool
    at: tuple[Assignment, ...]
    counterexample: Counterexample | None = None
    problem: str = ""


def check_bounded(claim: Claim, seed: int, shapes: int = SHAPES) -> Verdict:
    """The verdict on a claim; the same for the same claim and seed."""
    # As in the other gate, a few shapes first: most false claims fail at once.
    stream = Stream(claim, seed, POOLS, LARGEST, MOST_POINTS)
    few = stream.spread(min(FIRST, shapes))
    first = _check(claim, few)
    if not first.passed:
        return first
    tried = stream.spread(shapes)
    rest = tuple(at for at in tried if at not in few)
    verdict = _check(claim, rest) if rest else first
    if not verdict.passed:
        return verdict
    seen = tuple(dict.fromkeys((*first.at, *verdict.at)))
    # Groups need extents beyond the largest: where equations are violated they are allowed.
    against = tuple(at for at in violations(claim, seen) if _elements(at) <= ELEMENTS)
    last = _check(claim, against) if against else verdict
    return Verdict(True, (*seen, *against)) if last.passed else last


def _elements(at: Assignment) -> int:
    return sum(math.prod(shape) for _, shape in at.shapes)


def _check(claim: Claim, small: tuple[Assignment, ...]) -> Verdict:
    if not small:
        return Verdict(False, (), problem="no small shapes fit both sides")
    compared: list[Assignment] = []
    for at in small:
        try:
            wrong, opaque = _differ(claim, at)
        except DivisionByZero:
            continue  # an average over nothing has no normal form: the other gate compares it
        except NoMeaning as error:
            return Verdict(False, tuple(compared), problem=f"no normal form: {error}")
        compared.append(at)
        if wrong is not None:
            if opaque:
                return Verdict(False, tuple(compared), problem=f"cannot tell: {wrong}")
            return Verdict(False, tuple(compared), wrong)
    if not compared:
        return Verdict(False, (), problem="a division by zero at all small shapes")
    return Verdict(True, tuple(compared))


def _differ(claim: Claim, at: Assignment) -> tuple[Counterexample | None, bool]:
    """The difference of the sides, if there is one, and whether opaque functions are behind it.

    Where they are, arguments that agree decide: whatever the operator outside computes.
    """
    try:
        wrong, opaque = _normal_forms_differ(claim, at)
    except NoMeaning:
        if not _arguments_agree(claim, at):
            raise
        return None, True
    if wrong is not None and opaque and _arguments_agree(claim, at):
        wrong = None
    return wrong, opaque


def _arguments_agree(claim: Claim, at: Assignment) -> bool:
    inner = arguments(claim)
    try:
        return bool(inner) and all(_differ(c, at)[0] is None for c in inner)
    except NoMeaning:
        return False


def _normal_forms_differ(claim: Claim, at: Assignment) -> tuple[Counterexample | None, bool]:
    sides = Sides(claim, at)
    wrong = sides.types_differ()
    if wrong is not None:
        return wrong, False
    ring = Polynomials()
    inputs = {n: ring.tensor(n, shape) for n, shape in at.shapes}
    results = evaluate_typed(sides.typed, inputs, ring)
    half = len(sides.left)
    for n, (left, right) in enumerate(zip(results[:half], results[half:])):
        for index in np.ndindex(left.shape):
            a, b = cast(Polynomial, left[index]), cast(Polynomial, right[index])
            if a.frozen() != b.frozen():
                wrong = Counterexample(at, n, f"element {list(index)} has another normal form")
                return wrong, ring.opaque
    return None, ring.opaque
