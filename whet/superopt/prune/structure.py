"""Input renaming in bulk: numbers for pairs of graphs that are equal only up to renaming.

Most of the millions of pairs say the same few rules with other inputs.  The key of a pair is
computed like its canonical text (see `canonical`): variables are told apart by how both sides
use them, numbered, and the terms are hashed with these numbers.  Pairs of one key are one rule;
one rule may still have several keys, where use does not tell its variables apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

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


class Apps(NamedTuple):
    """Applications as columns, and what the lexicon says of operators: a label each, and whether
    their operands may be exchanged."""

    op: Any
    a: Any
    b: Any
    out: Any
    hash: Any
    labels: Any
    commutative: Any


class Nodes(NamedTuple):
    """Both sides of a pair: a node per input, then two (for the outputs) per application.

    `below` and `other` are the nodes of the operands, `partner` that of the same output on the
    other side, -1 where there is none.  Nodes without a label are none.
    """

    label: Any
    below: Any
    other: Any
    free: Any
    value: Any
    fingerprint: Any
    consumed: Any
    partner: Any


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
    apps = Apps(tables.app_op, tables.app_a, tables.app_b, tables.app_out, tables.app_hash,
                labels, free)  # fmt: skip
    keys = np.empty(len(pairs), np.uint64)
    _keys(graphs, pairs, apps, ranks, keys)
    return keys


@compiled
def _keys(graphs: Any, pairs: Any, apps: Any, ranks: Any, keys: Any) -> None:
    size, inputs = graphs.shape[1], len(ranks)
    middle, total = inputs + 2 * size, inputs + 4 * size
    nodes = Nodes(
        np.zeros(total, np.uint64), np.empty(total, np.int64), np.empty(total, np.int64),
        np.zeros(total, np.bool_), np.empty(total, np.int64), np.zeros(total, np.uint64),
        np.zeros(total, np.bool_), np.empty(total, np.int64),
    )  # fmt: skip
    up = np.zeros(total, np.uint64)
    context = np.zeros(total, np.uint64)
    colour = np.zeros(inputs, np.uint64)
    for i in range(len(pairs)):
        nodes.label[:] = U(0)
        nodes.consumed[:] = False
        nodes.partner[:] = -1
        _read(graphs[pairs[i, 0]], apps, nodes, inputs, inputs)
        _read(graphs[pairs[i, 1]], apps, nodes, inputs, middle)
        if not _matched(nodes, inputs, middle):
            keys[i] = NO_KEY
            continue
        for v in range(inputs):
            colour[v] = mix(ranks[v] + U(1))
        for _ in range(ROUNDS):
            _refine(nodes, colour, up, context)
        _number(nodes.consumed, colour, ranks, up)
        _upwards(nodes, inputs, up)
        keys[i] = _both_ways(nodes.partner, up, inputs, middle)


@inlined
def _two(a: Any, b: Any) -> Any:
    return mix(mix(a * FIRST + THIRD) + b * SECOND)


@inlined
def _node_of(v: Any, label: Any, value: Any, inputs: Any, start: Any, end: Any) -> Any:
    """The node of a value: an input's own, or that of an application between start and end."""
    if v < inputs:
        return v
    for q in range(start, end):
        if label[q] != U(0) and value[q] == v:
            return q
    return -1


@compiled
def _read(graph: Any, apps: Any, nodes: Any, inputs: Any, start: Any) -> None:
    """The nodes of one side, from a place on."""
    label, below, other, free = nodes.label, nodes.below, nodes.other, nodes.free
    value, consumed, fingerprint = nodes.value, nodes.consumed, nodes.fingerprint
    app_op, app_a, app_b, app_out, app_hash, labels, commutative = apps
    for p in range(len(graph)):
        app = graph[p]
        if app == ABSENT:
            break
        first = start + 2 * p
        a = _node_of(app_a[app], label, value, inputs, start, first)
        b = _node_of(app_b[app], label, value, inputs, start, first)
        if a >= 0:
            consumed[a] = True
        if b >= 0:
            consumed[b] = True
        op = app_op[app]
        several = app_hash[app, 1] != U(0)
        for k in range(2):
            h = app_hash[app, k]
            if h == U(0):
                continue
            n = first + k
            label[n] = (labels[op] + U(1)) * U(4) + (U(k + 1) if several else U(0))
            below[n], other[n], free[n] = a, b, commutative[op]
            value[n], fingerprint[n] = app_out[app, k], h


@compiled
def _matched(nodes: Any, inputs: Any, middle: Any) -> Any:
    """Pair the outputs of both sides; whether all have a partner."""
    label, consumed = nodes.label, nodes.consumed
    fingerprint, partner = nodes.fingerprint, nodes.partner
    left, right = 0, 0
    for n in range(middle, len(label)):
        if label[n] != U(0) and not consumed[n]:
            right += 1
    for n in range(inputs, middle):
        if label[n] == U(0) or consumed[n]:
            continue
        left += 1
        for m in range(middle, len(label)):
            if label[m] != U(0) and not consumed[m] and fingerprint[m] == fingerprint[n]:
                partner[n] = m
                partner[m] = n
        if partner[n] < 0:
            return False
    return left == right


@compiled
def _upwards(nodes: Any, start: Any, up: Any) -> None:
    """A number for every node that depends on what is below it; nodes before `start` have one."""
    label, below, other, free = nodes.label, nodes.below, nodes.other, nodes.free
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
def _refine(nodes: Any, colour: Any, up: Any, context: Any) -> None:
    """Colours of variables that also say how what they are used in is used."""
    label, below, other, free = nodes.label, nodes.below, nodes.other, nodes.free
    partner, inputs = nodes.partner, len(colour)
    context[:] = U(0)
    up[:inputs] = colour
    _upwards(nodes, inputs, up)
    for n in range(inputs, len(label)):
        if partner[n] >= 0:
            context[n] += _two(up[partner[n]], up[n])
    for n in range(len(label) - 1, inputs - 1, -1):
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


@compiled
def _number(used: Any, colour: Any, ranks: Any, up: Any) -> None:
    """Variables numbered by their colours, in words that also say their ranks."""
    for v in range(len(colour)):
        before = 0
        for w in range(len(colour)):
            if used[w] and (colour[w] < colour[v] or (colour[w] == colour[v] and w < v)):
                before += 1
        up[v] = mix(U(before + 1) * U(16) + ranks[v])


@compiled
def _both_ways(partner: Any, up: Any, inputs: Any, middle: Any) -> Any:
    """The key of a pair, whichever of its sides is the first."""
    forwards, backwards = U(0), U(0)
    for n in range(inputs, middle):
        if partner[n] >= 0:
            forwards += _two(up[n], up[partner[n]])
            backwards += _two(up[partner[n]], up[n])
    return _two(min(forwards, backwards), max(forwards, backwards)) | U(1)
