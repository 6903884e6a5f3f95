"""Walking over all graphs of a given size, each exactly once, without computing any value.

A graph is a set of applications (operator and operand values).  It is built up one application
at a time, and of all orders in which its applications can be placed only one is walked: no
application may be smaller than one that was placed later than everything it depends on (the
lexicographic normal form of traces).

Inputs of one kind are interchangeable: only graphs that use the first ones of each kind are
visited, and `multiplicity` says how many graphs each of them stands for.

The fingerprint of a graph is the sum of the fingerprints of its outputs (all values that nothing
consumes), so the order of outputs and of operators does not matter.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from whet.superopt.generate.compiled import U, compiled, mix
from whet.superopt.generate.orders import count_orders
from whet.superopt.generate.pair_table import UNARY, find, grown, pair_key
from whet.superopt.generate.placing import (
    COLLECT,
    COUNT,
    STORE,
    consume,
    is_connected,
    is_new,
    is_normal,
    is_wanted,
    join,
    longer,
)

MAX_OPS = 6
MAX_VALUES = 64


class World(NamedTuple):
    """The tables that a walk reads.

    `limit` is the largest size that will be asked for: intermediate graphs must still be able to
    reach one that uses the first inputs of each kind.
    """

    limit: Any
    inputs: Any
    base: Any
    a: Any
    b: Any
    out: Any
    hash: Any
    pair_start: Any
    pair_count: Any
    value_hash: Any
    surface: Any
    fits: Any
    holes: Any
    multiplicity: Any


class Share(NamedTuple):
    """The part of the graphs that a walk is about.

    `part` of `parts` says which first applications to walk from, `shard` of `shards` which
    fingerprints to mark or store; `shift`, `seen` and `twice` are the table of marks.
    """

    task: Any
    size: Any
    part: Any
    parts: Any
    shard: Any
    shards: Any
    shift: Any
    seen: Any
    twice: Any


class Walked(NamedTuple):
    """The outcome of a walk: graphs, those they stand for, orders of building these; fingerprints
    and applications; the table of pairs, and the keys of those that are new in it."""

    visited: Any
    stands_for: Any
    sequences: Any
    prints: Any
    apps: Any
    keys: Any
    numbers: Any
    new: Any


@compiled
def walk(world: Any, share: Any, keys: Any, numbers: Any, pairs: Any) -> Any:
    """Visit the graphs of a share; `keys` and `numbers` are the table of so many pairs."""
    # Arrays that are taken out of a tuple in the inner loops would be counted there each time.
    app_a, app_b, app_out, app_hash = world.a, world.b, world.out, world.hash
    pair_start, pair_count, holes = world.pair_start, world.pair_count, world.holes
    surface, fits, multiplicity = world.surface, world.fits, world.multiplicity
    inputs, limit = world.inputs, world.limit
    size, task, seen, twice = share.size, share.task, share.seen, share.twice

    # The graph that is being built, by level: `bound` delimits the candidates that each level
    # brought, `place` is the next one to try, `parts` are connected sets of inputs and levels.
    ops = np.zeros(MAX_OPS, np.int32)
    bound = np.zeros(MAX_OPS + 2, np.int64)
    place = np.zeros(MAX_OPS + 1, np.int64)
    count = np.zeros(MAX_OPS + 1, np.int64)
    prints = np.zeros(MAX_OPS + 1, np.uint64)
    used = np.zeros(MAX_OPS + 1, np.uint64)
    parts = np.zeros((MAX_OPS + 1, MAX_OPS + 1), np.uint64)
    n_parts = np.zeros(MAX_OPS + 1, np.int64)
    needs = np.zeros(MAX_OPS, np.int64)
    orders = np.ones(1 << (MAX_OPS - 1), np.int64)
    room = np.zeros(1 << (MAX_OPS - 1), np.int64)
    # The values that it has, and where each value is among them.
    values = np.zeros(MAX_VALUES, np.int32)
    consumed = np.zeros(MAX_VALUES, np.int32)
    hashes = np.zeros(MAX_VALUES, np.uint64)
    masks = np.zeros(MAX_VALUES, np.uint64)
    where = np.full(len(world.value_hash), -1, np.int8)
    for i in range(inputs):
        values[i] = i
        where[i] = i
        hashes[i] = world.value_hash[i]
        masks[i] = U(1) << U(i)
    count[0] = inputs
    input_mask = (U(1) << U(inputs)) - U(1)
    candidates = np.empty(1 << 20, np.int32)
    for i in range(world.base):
        candidates[i] = i
    bound[1] = world.base
    place[0] = share.part

    stored = 1024 if task >= STORE else 1
    found_prints = np.empty(stored, np.uint64)
    found_ops = np.empty((stored, size), np.int32)
    new = np.empty(1024, np.uint64)
    n_found, n_new, visited, stands_for, sequences = 0, 0, 0, 0.0, 0.0
    level = 0
    while level >= 0:
        if place[level] >= bound[level + 1]:
            level -= 1
            if level >= 0:
                for q in range(count[level], count[level + 1]):
                    where[values[q]] = -1
                consume(where, consumed, app_a[ops[level]], app_b[ops[level]], -1)
            continue
        at = place[level]
        place[level] += share.parts if level == 0 else 1
        v = candidates[at]
        h0, h1 = app_hash[v, 0], app_hash[v, 1]
        if not is_normal(ops, bound, level, at, v):
            continue
        if not is_new(hashes, inputs, count[level], h0, h1):
            continue
        f = prints[level] + h0 + h1
        mask = U(0)
        a, b = app_a[v], app_b[v]
        for operand in (a, b):
            if operand >= 0:
                p = where[operand]
                mask |= masks[p]
                if p >= inputs and consumed[p] == 0:  # it is no output any more
                    f -= hashes[p]
        now_used = used[level] | (mask & input_mask)
        if holes[now_used] > 2 * (limit - level - 1):
            continue

        last = level + 1 == size
        if last and task != COLLECT:
            if holes[now_used] > 0:
                continue
            visited += 1
            if task == COUNT:
                stands_for += multiplicity[now_used]
                sequences += multiplicity[now_used] * orders[np.int64(mask >> U(32))]
                continue
            f += mix(now_used + U(1))  # only graphs of the same inputs are compared
            if not is_wanted(task, share.shard, share.shards, share.shift, seen, twice, f):
                continue
            if n_found == len(found_prints):
                found_prints, found_ops = longer(found_prints), longer(found_ops)
            found_prints[n_found] = f
            for q in range(level):
                found_ops[n_found, q] = ops[q]
            found_ops[n_found, level] = v
            if not is_connected(parts[level], n_parts[level], mask):
                found_ops[n_found, 0] = ~found_ops[n_found, 0]
            n_found += 1
            continue

        # Place v.
        ops[level] = v
        consume(where, consumed, a, b, 1)
        prints[level + 1] = f
        used[level + 1] = now_used
        own = mask | (U(1) << U(32 + level))
        n_parts[level + 1] = join(parts[level], parts[level + 1], n_parts[level], mask, own)
        if task == COUNT:
            needs[level] = np.int64(mask >> U(32))
            if level + 2 == size:
                count_orders(needs, level + 1, orders, room)

        # What it makes possible: the new values alone and with every value that is there.
        end, n_values = bound[level + 1], count[level]
        for w in range(2):
            c = app_out[v, w]
            if c < 0:
                continue
            for q in range(-1, n_values):
                x, y, reach = c, np.int32(UNARY), now_used
                if q >= 0:
                    t = values[q]
                    if not fits[surface[t], surface[c]]:
                        continue
                    x, y = min(t, c), max(t, c)
                    reach = now_used | (masks[q] & input_mask)
                if holes[reach] > 2 * (limit - level - 2):
                    continue
                key = pair_key(x, y)
                slot = find(keys, key)
                known = keys[slot] == key
                if known and not last and numbers[slot] < len(pair_start):
                    number = numbers[slot]
                    for e in range(pair_count[number]):
                        if end == len(candidates):
                            candidates = longer(candidates)
                        candidates[end] = pair_start[number] + e
                        end += 1
                elif last and not known:
                    if (pairs + n_new) * 2 > len(keys):
                        keys, numbers = grown(keys, numbers)
                        slot = find(keys, key)
                    if n_new == len(new):
                        new = longer(new)
                    keys[slot] = key
                    numbers[slot] = pairs + n_new
                    new[n_new] = key
                    n_new += 1
            values[n_values] = c
            where[c] = n_values
            hashes[n_values] = h0 if w == 0 else h1
            masks[n_values] = U(1) << U(32 + level)
            consumed[n_values] = 0
            n_values += 1
        if last:
            visited += 1
            for q in range(count[level], n_values):
                where[values[q]] = -1
            consume(where, consumed, a, b, -1)
            continue
        level += 1
        bound[level + 1] = end
        count[level] = n_values
        place[level] = 0
    return Walked(
        visited, stands_for, sequences, found_prints[:n_found], found_ops[:n_found], keys, numbers,
        new[:n_new],
    )  # fmt: skip
