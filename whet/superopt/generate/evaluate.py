"""Evaluating forms on many operands at once, in the prime field.

Data rows are [DRAWS, size + 1] residues, the last one a 1 (see `forms`).  An opaque function is a
random oracle: a fixed function without any property, so that only identities which hold for
every function are found.  A maximum over a window is an oracle too, symmetric in the window, and
so is that of two elements.
In exact mode residues above half the prime are negative numbers, and relu and maximum are what
they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from whet.superopt.generate.compiled import U, compiled, inlined, mix
from whet.superopt.generate.field import PRIME, TERMS_PER_REDUCTION
from whet.superopt.generate.forms import FormKind

POLYNOMIAL, RELU, INVERSE, POINTWISE, WINDOW, LARGER, SMALLER = range(7)
KIND_NUMBERS: dict[FormKind, int] = {
    "polynomial": POLYNOMIAL, "relu": RELU, "inverse": INVERSE, "pointwise": POINTWISE,
    "window": WINDOW, "larger": LARGER, "smaller": SMALLER,
}  # fmt: skip

P = U(PRIME)
HALF = U(PRIME // 2)
GOLDEN = U(0x9E3779B97F4A7C15)
INNER = U(0x2545F4914F6CDD1D)
OUTER = U(0xD1342543DE82EF95)


@inlined
def oracle(x: Any, salt: Any) -> Any:
    """A residue that depends on x and salt as if drawn at random."""
    return mix(x * GOLDEN + salt) % P


@compiled
def inverse(x: Any) -> Any:
    """One divided by a residue, by Fermat's little theorem; 0 has none and stays 0."""
    power = U(1)
    left = P - U(2)
    while left:
        if left & U(1):
            power = power * x % P
        x = x * x % P
        left >>= U(1)
    return power


@inlined
def element(
    e: Any, a: Any, b: Any, start: Any, first: Any, second: Any, factor: Any, plain: Any,
    kind: Any, salt: Any, exact: Any,
) -> Any:  # fmt: skip
    """Element e of a form on the rows a and b."""
    total = U(0)
    if kind == WINDOW:
        if exact:
            best = U(0)
            found = False
            for t in range(start[e], start[e + 1]):
                # Shifted so that the order of residues is that of the signed numbers.
                v = (U(a[first[t]]) + HALF) % P
                if not found or v > best:
                    best = v
                    found = True
            total = (best + P - HALF) % P
        else:
            for t in range(start[e], start[e + 1]):
                total += oracle(U(a[first[t]]), INNER)
            total = oracle(total % P, OUTER)
    elif kind >= LARGER:
        t = start[e]
        if exact:
            v, w = (U(a[first[t]]) + HALF) % P, (U(b[second[t]]) + HALF) % P
            total = ((v if (v > w) == (kind == LARGER) else w) + P - HALF) % P
        else:
            total = oracle(U(a[first[t]]), INNER) + oracle(U(b[second[t]]), INNER)
            total = oracle(total % P, salt)
    else:
        pending = 0
        for t in range(start[e], start[e + 1]):
            term = U(a[first[t]]) * U(b[second[t]])
            if not plain:
                term = term % P * factor[t]
            total += term
            pending += 1
            if pending == TERMS_PER_REDUCTION:
                total = total % P
                pending = 0
        total = total % P
        if exact and kind == RELU:
            total = total if total <= HALF else U(0)
        elif kind == INVERSE:
            total = inverse(total)
        elif kind != POLYNOMIAL:
            total = oracle(total, salt)
    return total


@compiled
def fill(
    left: Any, rows_a: Any, right: Any, rows_b: Any, start: Any, first: Any, second: Any,
    factor: Any, plain: Any, kind: Any, salt: Any, exact: Any, out: Any,
) -> None:  # fmt: skip
    """All elements for every pair of rows, into out [pairs, draws, size + 1]."""
    size = len(start) - 1
    for i in range(len(rows_a)):
        for d in range(out.shape[1]):
            a, b = left[rows_a[i], d], right[rows_b[i], d]
            for e in range(size):
                out[i, d, e] = element(
                    e, a, b, start, first, second, factor, plain, kind, salt, exact
                )
            out[i, d, size] = 1


@compiled
def hash_rows(data: Any, weights: Any, salt: Any, out: Any) -> None:
    """The fingerprint of every row: one random linear functional per draw, then scrambled."""
    size = data.shape[2] - 1
    for i in range(len(data)):
        z = salt
        for d in range(data.shape[1]):
            total = U(0)
            pending = 0
            for e in range(size):
                total += U(data[i, d, e]) * weights[d, e]
                pending += 1
                if pending == TERMS_PER_REDUCTION:
                    total = total % P
                    pending = 0
            z = mix(z ^ (total % P + GOLDEN * U(d + 1)))
        out[i] = z


@compiled
def hash_forms(
    left: Any, rows_a: Any, right: Any, rows_b: Any, start: Any, first: Any, second: Any,
    factor: Any, plain: Any, kind: Any, salt: Any, exact: Any, weights: Any, seed: Any, out: Any,
) -> None:  # fmt: skip
    """The fingerprints of what `fill` would write, without writing it."""
    size = len(start) - 1
    for i in range(len(rows_a)):
        z = seed
        for d in range(weights.shape[0]):
            a, b = left[rows_a[i], d], right[rows_b[i], d]
            total = U(0)
            for e in range(size):
                v = element(e, a, b, start, first, second, factor, plain, kind, salt, exact)
                total = (total + v * weights[d, e]) % P
            z = mix(z ^ (total + GOLDEN * U(d + 1)))
        out[i] = z


@compiled
def sample_rows(data: Any, positions: Any, seed: Any, out: Any) -> None:
    """A fingerprint of a few elements of the first draw of every row."""
    for i in range(len(data)):
        z = seed
        for p in positions:
            z = mix(z + U(data[i, 0, p]) * OUTER + U(1))
        out[i] = z


@compiled
def sample_forms(
    left: Any, rows_a: Any, right: Any, rows_b: Any, start: Any, first: Any, second: Any,
    factor: Any, plain: Any, kind: Any, salt: Any, exact: Any, seed: Any, out: Any,
) -> None:  # fmt: skip
    """`sample_rows` of what a form would give; the form holds the sampled elements only."""
    size = len(start) - 1
    for i in range(len(rows_a)):
        a, b = left[rows_a[i], 0], right[rows_b[i], 0]
        z = seed
        for e in range(size):
            v = element(e, a, b, start, first, second, factor, plain, kind, salt, exact)
            z = mix(z + v * OUTER + U(1))
        out[i] = z


ONES = np.ones((1, 8, 1), np.uint32)
"""The operand of a form that has none: a row without elements, for every draw."""
