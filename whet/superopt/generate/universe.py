"""All values that small graphs over a pool can compute, and the applications that compute them.

Values are hash-consed: two applications that give the same elements (in all draws) give the same
value.  A round evaluates the applications that graphs of one more operator can contain; the
values of the last round are never operands, so only their fingerprints are kept, and most of
them are told apart by a few elements without being computed as a whole.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from whet.core.types import Array, Shape
from whet.superopt.generate.compiled import U
from whet.superopt.generate.evaluate import (
    KIND_NUMBERS,
    ONES,
    fill,
    hash_forms,
    hash_rows,
    sample_forms,
    sample_rows,
)
from whet.superopt.generate.field import DRAWS, small_signed, uniform
from whet.superopt.generate.forms import Form
from whet.superopt.generate.grammar import Grammar, Instance
from whet.superopt.generate.kinds import Kind, result_kinds
from whet.superopt.generate.marks import Marks
from whet.superopt.generate.pair_table import UNARY, grown, insert_pairs
from whet.superopt.generate.pools import Pool
from whet.superopt.generate.scramble import scramble
from whet.superopt.generate.tables import Tables

CHUNK = 8192
"""Pairs that one task evaluates."""
NONE = -1
Arguments = tuple[Array, Array, Array, Array, bool, int, Any, bool]
"""A form as the compiled loops take it."""


@dataclass(frozen=True, slots=True)
class Identity:
    """An application whose result is one of its operands or a graph input."""

    op: int
    a: int
    b: int
    output: int
    """Which of several outputs, NONE if there is one."""
    equals: int
    """The value that it equals."""


@dataclass(slots=True)
class Apps:
    """Applications as columns; `pair` are numbers of pairs of operands."""

    op: Array = field(default_factory=lambda: np.zeros(0, np.int16))
    a: Array = field(default_factory=lambda: np.zeros(0, np.int32))
    b: Array = field(default_factory=lambda: np.zeros(0, np.int32))
    out: Array = field(default_factory=lambda: np.zeros((0, 2), np.int32))
    hash: Array = field(default_factory=lambda: np.zeros((0, 2), np.uint64))

    def __len__(self) -> int:
        return len(self.op)

    def extend(self, other: Apps) -> None:
        for name in ("op", "a", "b", "out", "hash"):
            setattr(self, name, np.concatenate([getattr(self, name), getattr(other, name)]))


class Universe:
    """Values and applications over a pool, for graphs of up to `size` operators.

    `exact` gives relu and max their real meaning on small signed numbers; otherwise they are
    random functions.
    """

    def __init__(
        self,
        pool: Pool,
        size: int,
        *,
        seed: int = 0,
        exact: bool = False,
        threads: int = 1,
    ) -> None:
        self.pool, self.size, self.exact, self.threads = pool, size, exact, threads
        self.rng = np.random.default_rng([seed, 0x57E7])
        self.grammar = Grammar(pool)
        self.data: dict[Shape, Array] = {}
        self.kind = np.zeros(0, np.int32)
        self.row = np.zeros(0, np.int32)
        self.hash = np.zeros(0, np.uint64)
        self.apps = Apps()
        self.pair_start = np.zeros(0, np.int32)
        self.pair_count = np.zeros(0, np.int32)
        self.keys = np.zeros(1 << 12, np.uint64)
        self.numbers = np.zeros(1 << 12, np.int32)
        self.pairs = 0
        self.identities: list[Identity] = []
        self.evaluated = 0
        self._add_inputs()
        self.holes, self.multiplicity = input_tables(pool)

    # ------------------------------------------------------------------------------- building
    @property
    def inputs(self) -> int:
        return len(self.pool.inputs)

    def build(self, after_round: Callable[[], None] = lambda: None) -> None:
        """All rounds, up to the size."""
        self._add_constants()
        n = self.inputs
        a, b = np.triu_indices(n, 1)
        first = np.concatenate([np.arange(n), a]).astype(np.int32)
        second = np.concatenate([np.full(n, UNARY), b]).astype(np.int32)
        self._insert(first, second)
        self._round(first, second, last=self.size == 1)
        self.base = len(self.apps)
        after_round()
        for done in range(1, self.size):
            self.keys, self.numbers, first, second = self.tables().new_pairs(done)
            self.pairs += len(first)
            self._round(first, second, last=done == self.size - 1)
            after_round()

    def tables(self) -> Tables:
        """Tables for walking over the graphs."""
        apps = self.apps
        surface = np.array(self.grammar.surface_of_kind, np.int32)[self.kind]
        return Tables(
            self.size, self.inputs, self.base, self.pairs, apps.op, apps.a, apps.b, apps.out,
            apps.hash, self.pair_start, self.pair_count, self.hash, surface,
            self.grammar.fits(), self.keys, self.numbers, self.holes, self.multiplicity,
        )  # fmt: skip

    def _insert(self, a: Array, b: Array) -> None:
        while (self.pairs + len(a)) * 2 > len(self.keys):
            self.keys, self.numbers = grown(self.keys, self.numbers)
        insert_pairs(self.keys, self.numbers, a, b, self.pairs)
        self.pairs += len(a)

    # --------------------------------------------------------------------------------- values
    def _add_inputs(self) -> None:
        draw = small_signed if self.exact else uniform
        for _, kind in self.pool.inputs:
            values = draw(self.rng, kind.size)
            self._append_values([(kind, np.pad(values, ((0, 0), (0, 1)), constant_values=1))])

    def _add_constants(self) -> None:
        rows, apps = [], []
        for op in self.pool.alphabet.constants:
            (form,) = self.grammar.forms_of(op, ())
            (kind,) = result_kinds(op, (), (form.shape,))
            out = np.empty((1, DRAWS, kind.size + 1), np.uint32)
            zero = np.zeros(1, np.int32)
            fill(ONES, zero, ONES, zero, *self._arguments(form, 0), out)
            rows.append((kind, out[0]))
            apps.append(self.grammar.op_number(op))
        first = len(self.kind)
        self._append_values(rows)
        n = len(apps)
        out = np.full((n, 2), NONE, np.int32)
        out[:, 0] = np.arange(first, first + n)
        hashes = np.zeros((n, 2), np.uint64)
        hashes[:, 0] = self.hash[first:]
        none = np.full(n, NONE, np.int32)
        self.apps.extend(Apps(np.array(apps, np.int16), none, none, out, hashes))

    def _append_values(self, rows: Sequence[tuple[Kind, Array]]) -> None:
        for kind, row in rows:
            number = self.grammar.kind_number(kind)
            found = np.empty(1, np.uint64)
            hash_rows(
                row[None], self.grammar.functional(kind.shape), self.grammar.seed(kind), found
            )
            self.hash = np.append(self.hash, found)
            self.kind = np.append(self.kind, np.int32(number))
            self.row = np.append(self.row, np.int32(self._append_data(kind.shape, row[None])))

    def _append_data(self, shape: Shape, rows: Array) -> int:
        """Keep the rows; returns the number of the first."""
        known = self.data.get(shape)
        self.data[shape] = rows if known is None else np.concatenate([known, rows])
        return 0 if known is None else len(known)

    def _arguments(self, form: Form, salt: int) -> Arguments:
        return (form.start, form.first, form.second, form.factor, form.plain,
                KIND_NUMBERS[form.kind], U(salt), self.exact)  # fmt: skip

    def _operands(self, a: Array, b: Array, swapped: bool) -> tuple[Array, Array, Array, Array]:
        """Data and row numbers of both operands; all values of either have one kind."""
        if swapped:
            a, b = b, a
        left = self.data[self.grammar.kinds[self.kind[a[0]]].shape]
        if b[0] < 0:
            return left, self.row[a], ONES, np.zeros(len(a), np.int32)
        return left, self.row[a], self.data[self.grammar.kinds[self.kind[b[0]]].shape], self.row[b]

    # --------------------------------------------------------------------------------- rounds
    def _round(self, a: Array, b: Array, *, last: bool) -> None:
        """Evaluate all operators on the pairs, and name the values that they give."""
        tasks = self._tasks(a, b)
        method = self._sampled_hashes if last else self._full_hashes
        hashes = self._parallel(method, tasks)
        if last:
            self._settle(tasks, hashes)
        self._name(tasks, hashes, last=last)

    def _tasks(self, a: Array, b: Array) -> list[_Task]:
        """The pairs by the kinds of their operands, with the operators that fit."""
        kinds_b = np.where(b >= 0, self.kind[b], NONE)
        code = self.kind[a].astype(np.int64) * (len(self.grammar.kinds) + 1) + kinds_b + 1
        order = np.argsort(code, kind="stable")
        edges = np.flatnonzero(np.diff(code[order], prepend=-1, append=-1))
        first_pair = self.pairs - len(a)
        tasks = []
        for low, high in itertools.pairwise(edges):
            at = order[low]
            for instance in self.grammar.instances_of(int(self.kind[a[at]]), int(kinds_b[at])):
                for start in range(low, high, CHUNK):
                    chosen = order[start : min(start + CHUNK, high)]
                    tasks.append(_Task(instance, a[chosen], b[chosen], chosen + first_pair))
        return tasks

    def _parallel(
        self, method: Callable[[_Task], list[Array]], tasks: Sequence[_Task]
    ) -> list[list[Array]]:
        if self.threads == 1:
            return [method(t) for t in tasks]
        # Tasks are many and small: every thread takes a fair share of them at once.
        results: list[list[Array]] = [[]] * len(tasks)

        def work(first: int) -> None:
            for n in range(first, len(tasks), self.threads):
                results[n] = method(tasks[n])

        with ThreadPoolExecutor(self.threads) as pool:
            list(pool.map(work, range(self.threads)))
        return results

    def _full_hashes(self, task: _Task) -> list[Array]:
        left, rows_a, right, rows_b = self._operands(task.a, task.b, task.instance.swapped)
        found = []
        for form, kind in zip(task.instance.forms, task.instance.kinds):
            out = np.empty(len(rows_a), np.uint64)
            functional = self.grammar.functional(form.shape)
            seed = self.grammar.seed(self.grammar.kinds[kind])
            hash_forms(left, rows_a, right, rows_b, *self._arguments(form, task.instance.salt),
                       functional, seed, out)  # fmt: skip
            found.append(out)
        return found

    def _sampled_hashes(self, task: _Task) -> list[Array]:
        left, rows_a, right, rows_b = self._operands(task.a, task.b, task.instance.swapped)
        found = []
        for form, kind in zip(task.instance.samples, task.instance.kinds):
            out = np.empty(len(rows_a), np.uint64)
            seed = self.grammar.seed(self.grammar.kinds[kind])
            sample_forms(left, rows_a, right, rows_b, *self._arguments(form, task.instance.salt),
                         seed, out)  # fmt: skip
            found.append(out)
        return found

    def _settle(self, tasks: list[_Task], hashes: list[list[Array]]) -> None:
        """Replace sampled fingerprints that may occur twice by fingerprints of all elements."""
        marks = Marks(sum(len(h) for found in hashes for h in found) + len(self.kind))
        for kind_number in np.unique(self.kind):
            kind = self.grammar.kinds[kind_number]
            rows = self.row[self.kind == kind_number]
            out = np.empty(len(rows), np.uint64)
            sample_rows(self.data[kind.shape][rows], self.grammar.positions(kind.shape),
                        self.grammar.seed(kind), out)  # fmt: skip
            # Kinds that differ in their trees alone may hold the same values.
            marks.add(np.unique(out))
        for found in hashes:
            for h in found:
                marks.add(h)
        again, places = [], []
        for task, found in zip(tasks, hashes):
            doubtful = np.flatnonzero(np.logical_or.reduce([marks.twice(h) for h in found]))
            if len(doubtful):
                again.append(_Task(task.instance, task.a[doubtful], task.b[doubtful],
                                   task.pair[doubtful]))  # fmt: skip
                places.append((found, doubtful))
        for (found, doubtful), full in zip(places, self._parallel(self._full_hashes, again)):
            for h, whole in zip(found, full):
                h[doubtful] = whole

    def _name(self, tasks: list[_Task], hashes: list[list[Array]], *, last: bool) -> None:
        """Turn fingerprints into values and applications."""
        if not tasks:
            self._append_pairs(np.zeros(0, np.int64))
            return
        made = [self._rows(t, h) for t, h in zip(tasks, hashes)]
        apps = Apps(
            *(np.concatenate(c) for c in zip(*((m.op, m.a, m.b, m.out, m.hash) for m in made)))
        )
        pair = np.concatenate([t.pair for t in tasks])
        kinds = np.concatenate(
            [np.broadcast_to(_two(t.instance.kinds), (len(t.a), 2)) for t in tasks]
        )
        self.evaluated += len(apps)
        fresh = self._drop_identities(apps)
        apps = Apps(apps.op[fresh], apps.a[fresh], apps.b[fresh], apps.out[fresh], apps.hash[fresh])
        pair, kinds = pair[fresh], kinds[fresh]
        if not last:
            self._assign(apps, kinds, tasks, fresh)
        order = np.argsort(pair, kind="stable")
        self._append_pairs(pair)
        self.apps.extend(Apps(apps.op[order], apps.a[order], apps.b[order], apps.out[order],
                              apps.hash[order]))  # fmt: skip

    def _append_pairs(self, pair: Array) -> None:
        """The places of the applications of the new pairs."""
        done = len(self.pair_start)
        counts = np.bincount(pair - done, minlength=self.pairs - done)
        start = len(self.apps) + np.cumsum(counts) - counts
        self.pair_start = np.concatenate([self.pair_start, start.astype(np.int32)])
        self.pair_count = np.concatenate([self.pair_count, counts.astype(np.int32)])

    def _rows(self, task: _Task, hashes: list[Array]) -> Apps:
        n, instance = len(task.a), task.instance
        a, b = (task.b, task.a) if instance.swapped else (task.a, task.b)
        pair = np.zeros((n, 2), np.uint64)
        for k, h in enumerate(hashes):
            pair[:, k] = h
        return Apps(np.full(n, instance.op, np.int16), a, b, np.full((n, 2), NONE, np.int32), pair)

    def _drop_identities(self, apps: Apps) -> Array:
        """The applications that give something new; the others are noted as identities."""
        known = self.hash[: self.inputs]
        same = np.zeros((len(apps), 2), bool)
        equals = np.full((len(apps), 2), NONE, np.int64)
        for k in range(2):
            real = apps.hash[:, k] != 0
            for operand in (apps.a, apps.b):
                hit = real & (operand >= 0) & (self.hash[operand] == apps.hash[:, k])
                same[hit, k], equals[hit, k] = True, operand[hit]
            order = np.argsort(known)
            at = order[np.minimum(np.searchsorted(known, apps.hash[:, k], sorter=order),
                                  len(known) - 1)]  # fmt: skip
            hit = real & (known[at] == apps.hash[:, k])
            same[hit, k], equals[hit, k] = True, at[hit]
        for i, k in zip(*np.nonzero(same)):
            output = int(k) if apps.hash[i, 1] else NONE
            operands = int(apps.a[i]), int(apps.b[i])
            self.identities.append(Identity(int(apps.op[i]), *operands, output, int(equals[i, k])))
        twins = apps.hash[:, 0] == apps.hash[:, 1]
        return np.flatnonzero(~same.any(axis=1) & ~twins)

    def _assign(self, apps: Apps, kinds: Array, tasks: list[_Task], fresh: Array) -> None:
        """Give every output a value number, and keep the elements of new values."""
        real = np.flatnonzero(kinds.ravel() >= 0)
        code = scramble(apps.hash.ravel()[real] + scramble(kinds.ravel()[real].astype(np.uint64)))
        known = scramble(self.hash + scramble(self.kind.astype(np.uint64)))
        distinct, first, inverse = np.unique(code, return_index=True, return_inverse=True)
        order = np.argsort(known)
        at = order[np.minimum(np.searchsorted(known, distinct, sorter=order), len(known) - 1)]
        is_known = known[at] == distinct
        numbers = np.where(is_known, at, NONE)
        new = np.flatnonzero(~is_known)
        new = new[np.argsort(first[new], kind="stable")]
        numbers[new] = len(self.kind) + np.arange(len(new))
        flat = apps.out.reshape(-1)
        flat[real] = numbers[inverse]

        source = real[first[new]]
        new_kinds = kinds.ravel()[source]
        self.hash = np.concatenate([self.hash, apps.hash.ravel()[source]])
        self.kind = np.concatenate([self.kind, new_kinds.astype(np.int32)])
        self.row = np.concatenate([self.row, self._compute(source, tasks, fresh)])

    def _compute(self, source: Array, tasks: list[_Task], fresh: Array) -> Array:
        """Compute and keep the elements of outputs, given by application * 2 + output.

        Returns the number of each one's data row.
        """
        rows = np.empty(len(source), np.int32)
        ends = np.cumsum([len(t.a) for t in tasks])
        position, output = fresh[source // 2], source % 2
        of_task = np.searchsorted(ends, position, side="right")
        made: dict[Shape, list[tuple[Array, Array]]] = {}
        groups = of_task * 2 + output
        order = np.argsort(groups, kind="stable")
        edges = np.flatnonzero(np.diff(groups[order], prepend=-1, append=-1))
        for low, high in itertools.pairwise(edges):
            chosen = order[low:high]
            task, k = tasks[of_task[chosen[0]]], int(output[chosen[0]])
            at = position[chosen] - (ends[of_task[chosen[0]]] - len(task.a))
            form = task.instance.forms[k]
            left, rows_a, right, rows_b = self._operands(
                task.a[at], task.b[at], task.instance.swapped
            )
            out = np.empty((len(at), DRAWS, int(np.prod(form.shape)) + 1), np.uint32)
            fill(left, rows_a, right, rows_b, *self._arguments(form, task.instance.salt), out)
            made.setdefault(form.shape, []).append((chosen, out))
        for shape, blocks in made.items():
            chosen = np.concatenate([c for c, _ in blocks])
            start = self._append_data(shape, np.concatenate([d for _, d in blocks]))
            rows[chosen] = start + np.arange(len(chosen), dtype=np.int32)
        return rows


@dataclass(frozen=True, eq=False, slots=True)
class _Task:
    """One operator on some pairs of values, all of the same two kinds."""

    instance: Instance
    a: Array
    b: Array
    pair: Array


def _two(kinds: tuple[int, ...]) -> Array:
    return np.array([*kinds, NONE][:2], np.int64)


def input_tables(pool: Pool) -> tuple[Array, Array]:
    """For every set of inputs: how many are missing below the last one used of each kind, and
    how many sets it stands for when inputs of one kind are exchanged in order."""
    total = len(pool.inputs)
    masks = np.arange(1 << total)
    holes = np.zeros(len(masks), np.int8)
    stands_for = np.ones(len(masks))
    start = 0
    while start < total:
        end = start
        while end < total and pool.kinds[end] == pool.kinds[start]:
            end += 1
        bits = (masks >> start) & ((1 << (end - start)) - 1)
        used = np.bitwise_count(bits)
        last = np.zeros_like(bits)
        for n in range(end - start):
            last = np.where(bits >> n & 1, n + 1, last)
        holes += (last - used).astype(np.int8)
        choices = np.ones(end - start + 1)
        for k in range(1, end - start + 1):
            choices[k] = choices[k - 1] * (end - start - k + 1) / k
        stands_for *= choices[used]
        start = end
    return holes, stands_for
