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

from typing import Any

import numpy as np

from whet.superopt.generate.compiled import U, compiled, inlined, mix

MAX_OPS = 6
MAX_VALUES = 64
UNARY = -1
"""The second member of a pair that is one operand alone."""
COUNT, COLLECT, MARK, STORE, STORE_MARKED = range(5)
"""What a walk is for: counting graphs, collecting the pairs of values that occur together,
marking fingerprints in a table (see `marks`), storing graphs, storing those that are marked."""


# ------------------------------------------------------------------------- the table of pairs
@inlined
def pair_key(a: Any, b: Any) -> Any:
    return (U(a + 1) << U(32)) | U(b + 2)


@compiled
def find(keys: Any, key: Any) -> Any:
    """The place where the key is or would be in an open-addressing table (0 marks a free place)."""
    mask = U(len(keys) - 1)
    i = mix(key) & mask
    while keys[i] != U(0) and keys[i] != key:
        i = (i + U(1)) & mask
    return i


@compiled
def insert_pairs(keys: Any, numbers: Any, a: Any, b: Any, first: Any) -> None:
    """Number the pairs from `first` on; the table must have room."""
    for i in range(len(a)):
        key = pair_key(a[i], b[i])
        at = find(keys, key)
        keys[at] = key
        numbers[at] = first + i


@compiled
def grown(keys: Any, numbers: Any) -> Any:
    """The same table in twice the space."""
    more_keys = np.zeros(len(keys) * 2, np.uint64)
    more_numbers = np.zeros(len(keys) * 2, np.int32)
    for i in range(len(keys)):
        if keys[i] != U(0):
            at = find(more_keys, keys[i])
            more_keys[at] = keys[i]
            more_numbers[at] = numbers[i]
    return more_keys, more_numbers


# -------------------------------------------------------------------------- orders of building
@compiled
def count_orders(needs: Any, n: Any, down: Any, up: Any) -> None:
    """In how many orders n applications and one more can be placed, by what the last one needs.

    needs[i] is the set (as bits) of those that i depends on.  `down` ends up with the answer for
    every set; `up` is room to work in.  Placing the last one after a prefix of an order splits
    it into an order of a set and one of the rest; that set must hold what the last one needs.
    """
    full = (1 << n) - 1
    for s in range(full + 1):
        down[s] = 0
        up[s] = 0
    down[0] = 1
    up[full] = 1
    for s in range(1, full + 1):
        for i in range(n):
            rest = s & ~(1 << i)
            if rest != s and needs[i] & ~rest == 0:
                down[s] += down[rest]
    for s in range(full - 1, -1, -1):
        for i in range(n):
            more = s | (1 << i)
            if more != s and needs[i] & ~s == 0:
                up[s] += up[more]
    for s in range(full + 1):
        down[s] *= up[s]
    for i in range(n):
        for s in range(full + 1):
            if not s >> i & 1:
                down[s] += down[s | (1 << i)]


# --------------------------------------------------------------------------------- the walk
@compiled
def walk(
    size: Any, limit: Any, task: Any, app_a: Any, app_b: Any, app_out: Any,
    app_hash: Any, pair_start: Any, pair_count: Any, base: Any, inputs: Any, value_hash: Any,
    surface: Any, fits: Any, keys: Any, numbers: Any, pairs: Any, holes: Any, multiplicity: Any,
    part: Any, parts: Any, shard: Any, shards: Any, shift: Any, seen: Any, twice: Any,
) -> Any:  # fmt: skip
    """Visit the graphs of `size` applications.

    limit     the largest size that will be asked for: intermediate graphs must still be able
              to reach one that uses the first inputs of each kind
    task      COUNT, COLLECT (pairs of values that are not in the table yet), ...
    part      of `parts`: which first applications to walk from
    shard     of `shards`: which fingerprints to mark or store
    shift     and `seen`, `twice`: the table of marks

    Returns (graphs, graphs they stand for, orders of building these, fingerprints, applications,
    keys, numbers, new pairs a, b).
    """
    candidates = np.empty(1 << 20, np.int32)
    bound = np.zeros(MAX_OPS + 2, np.int64)
    ops = np.zeros(MAX_OPS, np.int32)
    place = np.zeros(MAX_OPS + 1, np.int64)
    values = np.zeros(MAX_VALUES, np.int32)
    count = np.zeros(MAX_OPS + 1, np.int64)
    consumed = np.zeros(MAX_VALUES, np.int32)
    hashes = np.zeros(MAX_VALUES, np.uint64)
    masks = np.zeros(MAX_VALUES, np.uint64)
    where = np.full(len(value_hash), -1, np.int8)
    prints = np.zeros(MAX_OPS + 1, np.uint64)
    used = np.zeros(MAX_OPS + 1, np.uint64)
    parts_of = np.zeros((MAX_OPS + 1, MAX_OPS + 1), np.uint64)
    n_parts = np.zeros(MAX_OPS + 1, np.int64)
    input_mask = (U(1) << U(inputs)) - U(1)
    needs = np.zeros(MAX_OPS, np.int64)
    orders = np.ones(1 << (MAX_OPS - 1), np.int64)
    room = np.zeros(1 << (MAX_OPS - 1), np.int64)
    collect = task == COLLECT

    stored = 1024 if task >= STORE else 1
    found_prints = np.empty(stored, np.uint64)
    found_ops = np.empty((stored, size), np.int32)
    new_a = np.empty(1024, np.int32)
    new_b = np.empty(1024, np.int32)
    n_found = 0
    n_new = 0
    visited = 0
    stands_for = 0.0
    sequences = 0.0

    for i in range(inputs):
        values[i] = i
        where[i] = i
        hashes[i] = value_hash[i]
        masks[i] = U(1) << U(i)
    count[0] = inputs
    for i in range(base):
        candidates[i] = i
    bound[1] = base
    level = 0
    place[0] = part
    while level >= 0:
        if place[level] >= bound[level + 1]:
            if level > 0:
                for q in range(count[level - 1], count[level]):
                    where[values[q]] = -1
                v = ops[level - 1]
                if app_a[v] >= 0:
                    consumed[where[app_a[v]]] -= 1
                if app_b[v] >= 0:
                    consumed[where[app_b[v]]] -= 1
            level -= 1
            continue
        at = place[level]
        place[level] += parts if level == 0 else 1
        v = candidates[at]

        # The normal form: v comes after everything placed since v became possible.
        segment = level
        fine = True
        while segment > 0 and at < bound[segment]:
            segment -= 1
            if ops[segment] >= v:
                fine = False
                break
        if not fine:
            continue

        # No value twice; those equal to an input are no applications at all.
        h0 = app_hash[v, 0]
        h1 = app_hash[v, 1]
        for q in range(inputs, count[level]):
            if hashes[q] == h0 or (h1 != U(0) and hashes[q] == h1):
                fine = False
                break
        if not fine:
            continue

        a = app_a[v]
        b = app_b[v]
        f = prints[level] + h0 + h1
        mask = U(0)
        if a >= 0:
            p = where[a]
            mask |= masks[p]
            if p >= inputs and consumed[p] == 0:
                f -= hashes[p]
        if b >= 0:
            p = where[b]
            mask |= masks[p]
            if p >= inputs and consumed[p] == 0:
                f -= hashes[p]
        now_used = used[level] | (mask & input_mask)
        if holes[now_used] > 2 * (limit - level - 1):
            continue

        if level + 1 == size and not collect:
            if holes[now_used] > 0:
                continue
            visited += 1
            if task == COUNT:
                stands_for += multiplicity[now_used]
                sequences += multiplicity[now_used] * orders[np.int64(mask >> U(32))]
                continue
            # Only graphs of the same inputs are compared.
            f += mix(now_used + U(1))
            if shards > 1 and (f & U(0xFFFF)) * U(shards) >> U(16) != U(shard):
                continue
            if task != STORE:
                word = f >> shift >> U(6)
                bit = U(1) << (f >> shift & U(63))
                if task == MARK:
                    if seen[word] & bit:
                        twice[word] |= bit
                    else:
                        seen[word] |= bit
                    continue
                if not twice[word] & bit:
                    continue
            whole = True
            for q in range(n_parts[level]):
                if parts_of[level, q] & mask == U(0):
                    whole = False
            if n_found == len(found_prints):
                more_prints = np.empty(2 * n_found, np.uint64)
                more_prints[:n_found] = found_prints
                found_prints = more_prints
                more_ops = np.empty((2 * n_found, size), np.int32)
                more_ops[:n_found] = found_ops
                found_ops = more_ops
            found_prints[n_found] = f
            for q in range(level):
                found_ops[n_found, q] = ops[q]
            found_ops[n_found, level] = v
            if not whole:
                found_ops[n_found, 0] = ~found_ops[n_found, 0]
            n_found += 1
            continue

        # Place v.
        ops[level] = v
        if a >= 0:
            consumed[where[a]] += 1
        if b >= 0:
            consumed[where[b]] += 1
        prints[level + 1] = f
        used[level + 1] = now_used
        own = mask | (U(1) << U(32 + level))
        n = 0
        for q in range(n_parts[level]):
            if parts_of[level, q] & mask != U(0):
                own |= parts_of[level, q]
            else:
                parts_of[level + 1, n] = parts_of[level, q]
                n += 1
        parts_of[level + 1, n] = own
        n_parts[level + 1] = n + 1
        if task == COUNT:
            needs[level] = np.int64(mask >> U(32))
            if level + 2 == size:
                count_orders(needs, level + 1, orders, room)

        # What it makes possible: the new values alone and with every value that is there.
        end = bound[level + 1]
        n_values = count[level]
        last = level + 1 == size
        for w in range(2):
            c = app_out[v, w]
            if c < 0:
                continue
            for q in range(-1, n_values):
                if q < 0:
                    x = c
                    y = np.int32(UNARY)
                    reach = now_used
                else:
                    t = values[q]
                    if not fits[surface[t], surface[c]]:
                        continue
                    x = min(t, c)
                    y = max(t, c)
                    reach = now_used | (masks[q] & input_mask)
                if holes[reach] > 2 * (limit - level - 2):
                    continue
                key = pair_key(x, y)
                slot = find(keys, key)
                if keys[slot] == key:
                    if not last:
                        number = numbers[slot]
                        if number < len(pair_start):
                            first = pair_start[number]
                            for e in range(pair_count[number]):
                                if end == len(candidates):
                                    more = np.empty(2 * end, np.int32)
                                    more[:end] = candidates
                                    candidates = more
                                candidates[end] = first + e
                                end += 1
                elif collect and last:
                    if (pairs + n_new) * 2 > len(keys):
                        keys, numbers = grown(keys, numbers)
                        slot = find(keys, key)
                    if n_new == len(new_a):
                        more_a = np.empty(2 * n_new, np.int32)
                        more_a[:n_new] = new_a
                        new_a = more_a
                        more_b = np.empty(2 * n_new, np.int32)
                        more_b[:n_new] = new_b
                        new_b = more_b
                    keys[slot] = key
                    numbers[slot] = pairs + n_new
                    new_a[n_new] = x
                    new_b[n_new] = y
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
            if a >= 0:
                consumed[where[a]] -= 1
            if b >= 0:
                consumed[where[b]] -= 1
            continue
        bound[level + 2] = end
        count[level + 1] = n_values
        level += 1
        place[level] = 0
    return (visited, stands_for, sequences, found_prints[:n_found], found_ops[:n_found], keys,
            numbers, new_a[:n_new], new_b[:n_new])  # fmt: skip
