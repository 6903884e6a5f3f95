"""A prime field: the arithmetic of gate (b).

Sums, products and quotients are exact, and two different polynomials agree at a random point
with probability below degree / PRIME (Schwartz and Zippel).

What the field does not have is replaced by what is true of it for any meaning: a function
such as `exp` is a random oracle (equal arguments give equal results and nothing else is
known), and the order of the reals is a random order of the residues, which keeps all laws of
a lattice (max is associative, commutative, idempotent) and no law that mixes order and sums.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from whet.core.types import Array
from whet.ir.functions import INFIX
from whet.superopt.verify.evaluate import DivisionByZero, simple_fraction

PRIME = (1 << 31) - 1
"""Products of two residues fit 64 bits."""
LOWEST, HIGHEST = PRIME, PRIME + 1
"""Stand for the infinities, which occur only under max and min."""


class Field:
    """Residues modulo PRIME, as the ring that tensor expressions are evaluated over."""

    def numbers(self, values: Sequence[float]) -> Array:
        return np.array([_residue(v) for v in values], np.int64)

    def integers(self, values: Array) -> Array:
        return values.astype(np.int64) % PRIME

    def infix(self, op: str, left: Array, right: Array) -> Array:
        match op:
            case "add":
                return (left + right) % PRIME
            case "sub":
                return (left - right) % PRIME
            case "mul":
                return left * right % PRIME
            case "div":
                return left * _inverse(right) % PRIME
            case "eq" | "ne":
                return np.asarray(INFIX[op].numpy(left, right))
            case "lt" | "le" | "gt" | "ge":
                return np.asarray(INFIX[op].numpy(_rank(left), _rank(right)))
        return _oracle(op, left, right)

    def function(self, name: str, values: Sequence[Array]) -> Array:
        match name:
            case "neg":
                return -values[0] % PRIME
            case "max":
                a, b = values
                return np.where(_rank(a) >= _rank(b), a, b)
            case "min":
                a, b = values
                return np.where(_rank(a) <= _rank(b), a, b)
        return _oracle(name, *values)

    def choose(self, condition: Array, then: Array, other: Array) -> Array:
        return np.where(condition, then, other)

    def total(self, values: Array, dims: tuple[int, ...]) -> Array:
        # Fewer than 2 ** 32 residues fit 64 bits.
        return np.asarray(values.sum(axis=dims, keepdims=True) % PRIME)

    def contract(self, left: Array, right: Array, dims: tuple[int, ...]) -> Array:
        # A dimension of one operand alone is summed before products are made.
        left = self._total_alone(left, right, dims)
        right = self._total_alone(right, left, dims)
        inner = tuple(d for d in dims if left.shape[d] > 1)
        both = [d for d in range(left.ndim)
                if d not in inner and left.shape[d] > 1 and right.shape[d] > 1]  # fmt: skip
        rows = [d for d in range(left.ndim) if d not in inner and d not in both]
        batch = [left.shape[d] for d in both]
        count = int(np.prod([left.shape[d] for d in inner], dtype=np.int64))
        a = left.transpose(*both, *rows, *inner).reshape(*batch, -1, count)
        b = right.transpose(*both, *inner, *rows).reshape(*batch, count, -1)
        # Of every row dimension one of the operands has extent 1, so each pair becomes one.
        shape = [n for d in rows for n in (left.shape[d], right.shape[d])]
        product = _matmul(a, b).reshape(*batch, *shape[::2], *shape[1::2])
        pairs = np.arange(2 * len(rows)).reshape(2, -1).T.reshape(-1) + len(both)
        paired = product.transpose(*range(len(both)), *pairs)
        merged = [max(left.shape[d], right.shape[d]) for d in rows]
        whole = paired.reshape(*batch, *merged, *(1 for _ in inner))
        return np.asarray(whole.transpose(*np.argsort([*both, *rows, *inner])))

    def _total_alone(self, values: Array, other: Array, dims: tuple[int, ...]) -> Array:
        alone = tuple(d for d in dims if values.shape[d] > 1 and other.shape[d] == 1)
        return self.total(values, alone) if alone else values

    def extreme(self, kind: str, parts: Array) -> Array:
        ranks = _rank(parts)
        best = ranks.argmax(axis=0) if kind == "max" else ranks.argmin(axis=0)
        return np.asarray(np.take_along_axis(parts, best[None], axis=0)[0])


HALF = 16
"""Bits of the lower part of a residue: products of parts and their sums fit a double exactly."""


def _matmul(a: Array, b: Array) -> Array:
    """The product of matrices of residues, by exact products of doubles."""
    low = (1 << HALF) - 1
    a1, a0 = (a >> HALF).astype(np.float64), (a & low).astype(np.float64)
    b1, b0 = (b >> HALF).astype(np.float64), (b & low).astype(np.float64)
    high = (a1 @ b1).astype(np.int64) % PRIME
    middle = (a1 @ b0 + a0 @ b1).astype(np.int64) % PRIME
    lower = (a0 @ b0).astype(np.int64) % PRIME
    upper = ((high << HALF) % PRIME + middle) % PRIME
    return np.asarray(((upper << HALF) % PRIME + lower) % PRIME)


def _residue(value: float) -> int:
    if value in (float("inf"), float("-inf")):
        return HIGHEST if value > 0 else LOWEST
    fraction = simple_fraction(value)
    return fraction.numerator * pow(fraction.denominator, -1, PRIME) % PRIME


def _inverse(a: Array) -> Array:
    distinct, positions = np.unique(a, return_inverse=True)
    if (distinct == 0).any():
        raise DivisionByZero
    found = np.array([pow(int(v), -1, PRIME) for v in distinct], np.int64)
    return found[positions].reshape(a.shape)


def _rank(a: Array) -> Array:
    """The place of a residue in a random order, with the infinities at the ends."""
    mixed = (_mix(a, 1) >> np.uint64(2)).astype(np.int64)
    return np.where(a == LOWEST, -1, np.where(a == HIGHEST, np.int64(1 << 62), mixed))


def _oracle(name: str, *values: Array) -> Array:
    """A random function of this name; zero goes to no special place."""
    state = _mix(np.zeros(1, np.int64), zlib.crc32(name.encode()))
    for value in values:
        state = _mix(value, 0) + state * np.uint64(0x9E3779B97F4A7C15)
        state = _mix(state, 7)
    return np.asarray(state % np.uint64(PRIME)).astype(np.int64)


def _mix(a: Array, seed: int) -> Array:
    """A fast, well distributed hash of every element (splitmix64)."""
    with np.errstate(over="ignore"):  # NumPy warns where single numbers wrap around
        z = a.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15 * (seed + 1) % (1 << 64))
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(z ^ (z >> np.uint64(31)))
