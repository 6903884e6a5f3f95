"""Input renaming in bulk: numbers for pairs of graphs that are equal only up to renaming.

Most of the millions of pairs say the same few rules with other inputs.  The key of a pair is
computed like its canonical text (see `canonical`): variables are told apart by how both sides
use them, numbered, and the terms are hashed with these numbers.  Pairs of one key are one rule;
one rule may still have several keys, where use does not tell its variables apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from whet.core.types import Array
from whet.superopt.generate.compiled import U, compiled, inlined, mix
from whet.superopt.generate.kinds import Kind
from whet.superopt.generate.tables import Tables
from whet.superopt.prune.pairs import ABSENT
from whet.superopt.prune.terms import Lexicon

ROUNDS = 3
NO_KEY = U(0)
"""The key of two graphs whose outputs are not the same values."""

FIRST = U(0x9E3779B97F4A7C15)
SECOND = U(0xC2B2AE3D27D4EB4F)
THIRD = U(0x165667B19E3779F9)


def pair_keys(
    tables: Tables,
    graphs: Array,
    pairs: Array,
    symbols: Sequence[int],
    kinds: Sequence[Kind],
    lexicon: Lexicon,
) -> Array:
    """The key of every pair of graphs; `symbols` are the lexicon's for the tables' operators."""
    labels = np.array([lexicon.labels[s] for s in symbols], np.uint64)
    free = np.array([lexicon.commutative(s) for s in symbols], np.bool_)
    ranks = np.array([len(k.shape) for k in kinds], np.uint64)
    keys = np.empty(len(pairs), np.uint64)
    _keys(graphs, pairs, tables.app_op, tables.app_a, tables.app_b, tables.app_out,
          tables.app_hash, labels, free, ranks, keys)  # fmt: skip
    return keys


@inlined
def _two(a: Any, b: Any) -> Any:
    return mix(mix(a * FIRST + THIRD) + b * SECOND)


@compiled
def _upwards(label: Any, below: Any, other: Any, free: Any, start: Any, up: Any) -> None:
    """A number for every node that depends on what is below it; nodes before `start` have one."""
    for n in range(start, len(label)):
        if label[n] == U(0):
            continue
        x, y = U(0), U(0)
        if below[n] >= 0:
            x = up[below[n]]
        if other[n] >= 0:
            y = up[other[n]]
        if free[n] and x > y:
            x, y = y, x
        up[n] = _two(label[n], _two(x, y))


@compiled
def _keys(
    graphs: Any, pairs: Any, app_op: Any, app_a: Any, app_b: Any, app_out: Any, app_hash: Any,
    labels: Any, commutative: Any, ranks: Any, keys: Any,
) -> None:  # fmt: skip
    size = graphs.shape[1]
    inputs = len(ranks)
    # A node per input, then two (for the outputs) per application of either side.
    total = inputs + 4 * size
    label = np.zeros(total, np.uint64)
    below = np.empty(total, np.int64)
    other = np.empty(total, np.int64)
    free = np.zeros(total, np.bool_)
    value = np.empty(total, np.int64)
    fingerprint = np.zeros(total, np.uint64)
    consumed = np.zeros(total, np.bool_)
    up = np.zeros(total, np.uint64)
    context = np.zeros(total, np.uint64)
    colour = np.zeros(inputs, np.uint64)
    partner = np.empty(total, np.int64)
    for i in range(len(pairs)):
        label[:] = U(0)
        consumed[:] = False
        partner[:] = -1
        for side in range(2):
            start = inputs + side * 2 * size
            for p in range(size):
                app = graphs[pairs[i, side], p]
                if app == ABSENT:
                    break
                first = start + 2 * p
                a, b = -1, -1
                for k in range(2):
                    v = app_a[app] if k == 0 else app_b[app]
                    at = -1
                    if v >= 0:
                        if v < inputs:
                            at = v
                        else:
                            for q in range(start, first):
                                if label[q] != U(0) and value[q] == v:
                                    at = q
                        consumed[at] = True
                    if k == 0:
                        a = at
                    else:
                        b = at
                op = app_op[app]
                for k in range(2):
                    h = app_hash[app, k]
                    if h == U(0):
                        continue
                    several = app_hash[app, 1] != U(0)
                    n = first + k
                    label[n] = (labels[op] + U(1)) * U(4) + (U(k + 1) if several else U(0))
                    below[n], other[n], free[n] = a, b, commutative[op]
                    value[n] = app_out[app, k]
                    fingerprint[n] = h
        # The outputs of the first side, each with its equal on the second.
        middle = inputs + 2 * size
        fine = True
        left = 0
        right = 0
        for n in range(middle, total):
            if label[n] != U(0) and not consumed[n]:
                right += 1
        for n in range(inputs, middle):
            if label[n] != U(0) and not consumed[n]:
                left += 1
                for m in range(middle, total):
                    if label[m] != U(0) and not consumed[m] and fingerprint[m] == fingerprint[n]:
                        partner[n] = m
                        partner[m] = n
                if partner[n] < 0:
                    fine = False
        if not fine or left != right:
            keys[i] = NO_KEY
            continue
        for v in range(inputs):
            colour[v] = mix(ranks[v] + U(1))
        for _ in range(ROUNDS):
            context[:] = U(0)
            up[:inputs] = colour
            _upwards(label, below, other, free, inputs, up)
            for n in range(inputs, total):
                if partner[n] >= 0:
                    context[n] += _two(up[partner[n]], up[n])
            for n in range(total - 1, inputs - 1, -1):
                if label[n] == U(0):
                    continue
                inner = _two(context[n], up[n])
                if below[n] >= 0:
                    place = U(0) if free[n] else U(1)
                    context[below[n]] += _two(inner, up[below[n]] + place)
                if other[n] >= 0:
                    place = U(0) if free[n] else U(2)
                    context[other[n]] += _two(inner, up[other[n]] + place)
            for v in range(inputs):
                colour[v] = _two(colour[v], context[v])
        # Variables numbered by their colours, in words that also say their ranks.
        for v in range(inputs):
            before = 0
            for w in range(inputs):
                if consumed[w] and (colour[w] < colour[v] or (colour[w] == colour[v] and w < v)):
                    before += 1
            up[v] = mix(U(before + 1) * U(16) + ranks[v])
        _upwards(label, below, other, free, inputs, up)
        forwards, backwards = U(0), U(0)
        for n in range(inputs, middle):
            if partner[n] >= 0:
                forwards += _two(up[n], up[partner[n]])
                backwards += _two(up[partner[n]], up[n])
        keys[i] = _two(min(forwards, backwards), max(forwards, backwards)) | U(1)
