"""Short convolutions as products of transformed numbers (Toom, Cook, Winograd).

m outputs of a filter with r taps need only n = m + r - 1 multiplications:

    y = A^T ((G g) * (B^T d))          d: n inputs, g: r taps, y: m outputs

The matrices follow from n - 1 points at which the polynomials are multiplied; the last point is
infinity.  They are data: `linear_plan` finds what the rows of a matrix share, so that no code is
written for a particular size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from whet.core.types import Array

POINTS: dict[int, tuple[float, ...]] = {
    3: (0.75, -0.75),
    4: (0.0, 1.0, -1.0),
    5: (0.4, -0.4, 1.25, -1.25),
    6: (0.0, math.sqrt(0.5), -math.sqrt(0.5), math.sqrt(2.0), -math.sqrt(2.0)),
    8: (0.0, 0.5, -0.5, 1.0, -1.0, 2.0, -2.0),
}
"""The finite points by the number n of all points.

Pairs of opposite points share their sums.  Where they lie is a question of precision: of all such
pairs, these lose about the least (`magnification`); those of n = 6 half of what 0, 1, 2 lose.
"""


@dataclass(frozen=True, eq=False)
class Matrices:
    """B^T for the input, G for the filter, A^T for the output."""

    input: Array
    filter: Array
    output: Array

    @property
    def magnification(self) -> float:
        """The weight of a product's rounding in an output, as a root mean square.

        A product of random inputs and taps is of the size |row of B^T| |row of G|, and the outputs
        add up such products with the factors A^T; without transforms, r products of size 1.
        """
        sizes = np.sum(self.input**2, axis=1) * np.sum(self.filter**2, axis=1)
        return float(np.sqrt(np.mean(self.output**2 @ sizes) / self.filter.shape[1]))


def tile_sizes(taps: Sequence[int]) -> tuple[int, ...]:
    """The numbers of outputs m for which there are points with each of these numbers of taps."""
    return tuple(
        m for m in range(2, max(POINTS)) if taps and all(m + r - 1 in POINTS for r in taps)
    )


@lru_cache(maxsize=64)
def matrices(outputs: int, taps: int) -> Matrices:
    """The matrices of m outputs with r taps."""
    points = np.array(POINTS[outputs + taps - 1])
    count = len(points)
    apart = np.array([np.prod(p - np.delete(points, n)) for n, p in enumerate(points)])
    filters = np.zeros((count + 1, taps))
    filters[:count] = points[:, None] ** np.arange(taps) / apart[:, None]
    filters[count, taps - 1] = 1
    inputs = np.zeros((count + 1, count + 1))
    for n in range(count):
        inputs[n, :count] = np.poly(np.delete(points, n))[::-1]
    inputs[count] = np.poly(points)[::-1]
    results = np.zeros((outputs, count + 1))
    results[:, :count] = points[None, :] ** np.arange(outputs)[:, None]
    results[outputs - 1, count] = 1
    return Matrices(_rounded(inputs), filters, _rounded(results))


def _rounded(matrix: Array) -> Array:
    """Without the noise of computing the entries: zeros and ones cost nothing, equals share."""
    return np.round(matrix, 13)


Combination = tuple[tuple[int, float], ...]
"""A sum of coefficient times earlier value, by the value's number."""


@dataclass(frozen=True)
class LinearPlan:
    """matrix @ x as a list of steps.

    Values 0 .. inputs - 1 are x; each step defines the next value; `results` are the numbers
    of the values that are the rows of the product.
    """

    inputs: int
    steps: tuple[Combination, ...]
    results: tuple[int, ...]

    @property
    def operations(self) -> int:
        """Additions and multiplications, a fused pair counted once."""
        return sum(max(1, len(s) - any(abs(c) == 1 for _, c in s)) for s in self.steps)


@dataclass(frozen=True)
class Transform:
    """A matrix along every axis of a tile, one axis after the other."""

    plans: tuple[LinearPlan, ...]

    @property
    def before(self) -> tuple[int, ...]:
        """The shape of a tile."""
        return tuple(plan.inputs for plan in self.plans)

    @property
    def after(self) -> tuple[int, ...]:
        """The shape of what becomes of it."""
        return tuple(len(plan.results) for plan in self.plans)

    def shape_around(self, axis: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The extents before and after an axis when it is its turn: a line for every position."""
        return self.after[:axis], self.before[axis + 1 :]

    def lines(self, axis: int) -> int:
        """The number of times that the matrix of an axis is applied."""
        left, right = self.shape_around(axis)
        return math.prod(left) * math.prod(right)

    @property
    def operations(self) -> int:
        """Operations per tile."""
        return sum(self.lines(n) * plan.operations for n, plan in enumerate(self.plans))


class _Planner:
    """Collects steps; equal combinations are one step."""

    def __init__(self, inputs: int) -> None:
        self.inputs = inputs
        self.steps: dict[Combination, int] = {}

    def value(self, terms: Combination) -> int:
        """The number of a value that is the combination."""
        if len(terms) == 1 and terms[0][1] == 1:
            return terms[0][0]
        if terms not in self.steps:
            self.steps[terms] = self.inputs + len(self.steps)
        return self.steps[terms]


@lru_cache(maxsize=64)
def plan_of(rows: tuple[tuple[float, ...], ...]) -> LinearPlan:
    matrix = np.array(rows)
    planner = _Planner(matrix.shape[1])
    columns = _pair_columns(planner, matrix)
    results: dict[int, int] = {}
    for i in range(len(matrix)):
        if i in results:
            continue
        row = _terms(columns, i)
        for j in range(i + 1, len(matrix)):
            halves = _halves(row, _terms(columns, j)) if j not in results else None
            if halves is not None:
                even, (factor, odd) = planner.value(halves[0]), _normalised(planner, halves[1])
                results[i] = planner.value(((even, 1.0), (odd, factor)))
                results[j] = planner.value(((even, 1.0), (odd, -factor)))
                break
        else:
            results[i] = planner.value(row)
    order = tuple(results[i] for i in range(len(matrix)))
    return LinearPlan(matrix.shape[1], tuple(planner.steps), order)


def linear_plan(matrix: Array) -> LinearPlan:
    """The steps that compute matrix @ x, with sums and differences that rows share."""
    return plan_of(tuple(tuple(float(x) for x in row) for row in matrix))


def _pair_columns(planner: _Planner, matrix: Array) -> dict[int, Array]:
    """Columns by value number; two that differ only in signs become their sum and difference.

    a x1 + a x2, b x1 - b x2     ->     a (x1 + x2), b (x1 - x2)
    """
    columns: dict[int, Array] = {}
    done: set[int] = set()
    for j in range(matrix.shape[1]):
        if j in done:
            continue
        for k in range(j + 1, matrix.shape[1]):
            if k in done:
                continue
            same = (matrix[:, j] == matrix[:, k]) & (matrix[:, j] != 0)
            opposite = (matrix[:, j] == -matrix[:, k]) & (matrix[:, j] != 0)
            equal_size = np.abs(matrix[:, j]) == np.abs(matrix[:, k])
            if equal_size.all() and same.any() and opposite.any() and (same | opposite).sum() > 2:
                columns[planner.value(((j, 1.0), (k, 1.0)))] = np.where(same, matrix[:, j], 0)
                columns[planner.value(((j, 1.0), (k, -1.0)))] = np.where(opposite, matrix[:, j], 0)
                done |= {j, k}
                break
        else:
            columns[j] = matrix[:, j]
    return columns


def _terms(columns: dict[int, Array], row: int) -> Combination:
    return tuple((n, float(c[row])) for n, c in columns.items() if c[row] != 0)


def _halves(a: Combination, b: Combination) -> tuple[Combination, Combination] | None:
    """The common and the opposite part of two rows, if together they are all of both."""
    if [n for n, _ in a] != [n for n, _ in b] or len(a) < 3:
        return None
    even = tuple(x for x, y in zip(a, b) if x == y)
    odd = tuple(x for x, y in zip(a, b) if x[1] == -y[1])
    if not even or not odd or len(even) + len(odd) < len(a):
        return None
    return even, odd


def _normalised(planner: _Planner, terms: Combination) -> tuple[float, int]:
    """A factor and a value whose product is the combination; the value has a coefficient 1."""
    factor = terms[-1][1]
    return factor, planner.value(tuple((n, round(c / factor, 12)) for n, c in terms))
