"""The walk over graphs against a plain enumeration of sets of operators."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, strategies as st

from whet.superopt.generate.alphabet import CORE, Alphabet
from whet.superopt.generate.kinds import plain
from whet.superopt.generate.marks import Marks
from whet.superopt.generate.orders import count_orders
from whet.superopt.generate.pools import MATRICES, Pool
from whet.superopt.generate.universe import Universe

LETTERS = {x.name: x for x in CORE}
SMALL = Pool(
    "small",
    (
        ("x1", plain((3, 4), "activation")),
        ("x2", plain((3, 4), "activation")),
        ("w1", plain((4, 4), "weight")),
        ("w2", plain((4, 4), "weight")),
    ),
    Alphabet(tuple(LETTERS[n] for n in ("add", "matmul", "transpose", "concat", "split", "relu"))),
)


TINY = Pool(
    "tiny",
    (("x", plain((3, 4), "activation")), ("w", plain((4, 4), "weight"))),
    Alphabet(tuple(LETTERS[n] for n in ("matmul", "concat", "split", "relu"))),
    max_elements=60,
)


class Plain:
    """All graphs of a universe by brute force: ordered sequences, then sets of them."""

    def __init__(self, universe: Universe) -> None:
        self.apps = universe.apps
        self.inputs = universe.inputs
        self.hash = universe.hash

    def sequences(self, size: int) -> list[tuple[int, ...]]:
        found: list[tuple[int, ...]] = [()]
        for _ in range(size):
            found = [(*s, v) for s in found for v in range(len(self.apps)) if self.fits(s, v)]
        return found

    def fits(self, before: tuple[int, ...], v: int) -> bool:
        values = set(range(self.inputs)) | {int(o) for p in before for o in self.apps.out[p]}
        prints = {int(h) for p in before for h in self.apps.hash[p] if h}
        operands = {int(x) for x in (self.apps.a[v], self.apps.b[v]) if x >= 0}
        own = {int(h) for h in self.apps.hash[v] if h}
        return operands <= values and not own & prints

    def fingerprint(self, graph: frozenset[int]) -> tuple[int, frozenset[int]]:
        """The sum over the outputs' fingerprints, and the inputs that are used."""
        consumed = {int(x) for p in graph for x in (self.apps.a[p], self.apps.b[p]) if x >= 0}
        total = 0
        for p in graph:
            for value, h in zip(self.apps.out[p], self.apps.hash[p]):
                if h and int(value) not in consumed:
                    total += int(h)
        return total % (1 << 64), frozenset(x for x in consumed if x < self.inputs)


SIZE = 2


@pytest.fixture(scope="module")
def built() -> Universe:
    # A larger limit than the size that is compared keeps all applications of that size.
    universe = Universe(SMALL, SIZE + 1)
    universe.build()
    return universe


def test_every_graph_is_visited_once(built: Universe) -> None:
    tables, brute = built.tables(), Plain(built)
    sequences = brute.sequences(SIZE)
    sets = {frozenset(s) for s in sequences}
    assert tables.count(SIZE).sequences == len(sequences)
    assert tables.count(SIZE).canonical == len(sets)
    found = tables.graphs(SIZE)
    apps = np.where(found.apps < 0, ~found.apps, found.apps)
    rows = [frozenset(r) for r in apps.tolist()]
    assert len(set(rows)) == len(rows) == found.visited
    prefix = {s for s in sets if _uses_first_inputs(brute.fingerprint(s)[1])}
    assert set(rows) == prefix


def test_distinct_fingerprints_equal_those_of_the_raw_enumeration(built: Universe) -> None:
    brute = Plain(built)
    raw = {brute.fingerprint(frozenset(s)) for s in brute.sequences(SIZE)}
    wanted = {(f, used) for f, used in raw if _uses_first_inputs(used)}
    assert len(np.unique(built.tables().graphs(SIZE).prints)) == len(wanted)


def test_orders_of_building_are_those_of_the_raw_enumeration() -> None:
    universe = Universe(TINY, 3)
    universe.build()
    tables, brute = universe.tables(), Plain(universe)
    for size in (1, 2, 3):
        assert tables.count(size).sequences == len(brute.sequences(size))


@given(st.lists(st.integers(0, 31), min_size=4, max_size=4), st.integers(0, 15))
def test_orders_by_what_the_last_one_needs(drawn: list[int], last: int) -> None:
    needs = np.array([bits & ((1 << i) - 1) for i, bits in enumerate(drawn)])
    orders, room = np.zeros(16, np.int64), np.zeros(16, np.int64)
    count_orders(needs, 4, orders, room)
    wanted = [*needs.tolist(), last]
    valid = sum(
        all(wanted[v] & ~sum(1 << w for w in order[:n]) == 0 for n, v in enumerate(order))
        for order in itertools.permutations(range(5))
    )
    assert orders[last] == valid


def test_marked_graphs_are_those_that_are_not_alone() -> None:
    universe = Universe(MATRICES, 3)
    universe.build()
    tables = universe.tables()
    graphs = tables.graphs(3)
    prints, times = np.unique(graphs.prints, return_counts=True)
    marks = Marks(len(graphs.prints))
    tables.mark(3, marks)
    found = tables.graphs(3, marks=marks)
    assert np.isin(prints[times > 1], found.prints).all()
    assert 0 < len(found.prints) < len(graphs.prints) / 2


def _uses_first_inputs(used: frozenset[int]) -> bool:
    """x2 only together with x1, w2 only together with w1."""
    return all(n - 1 in used for n in used if n in (1, 3))


@pytest.mark.parametrize(("parts", "shards"), [(3, 1), (1, 4)])
def test_parts_and_shards_make_up_the_whole(parts: int, shards: int) -> None:
    universe = Universe(MATRICES, 3)
    universe.build()
    tables = universe.tables()
    whole = np.sort(tables.graphs(3).prints)
    pieces = [
        tables.graphs(3, part=p, parts=parts, shard=s, shards=shards).prints
        for p, s in itertools.product(range(parts), range(shards))
    ]
    assert all(len(p) for p in pieces)
    np.testing.assert_array_equal(np.sort(np.concatenate(pieces)), whole)


def test_another_seed_gives_as_many_values_and_graphs() -> None:
    counts = set()
    for seed in (0, 1):
        universe = Universe(MATRICES, 3, seed=seed)
        universe.build()
        tables = universe.tables()
        distinct = len(np.unique(tables.graphs(3).prints))
        counts.add((len(universe.kind), len(universe.apps), tables.count(3), distinct))
    assert len(counts) == 1


def test_threads_change_nothing() -> None:
    one, two = Universe(MATRICES, 3), Universe(MATRICES, 3, threads=2)
    one.build()
    two.build()
    np.testing.assert_array_equal(one.apps.hash, two.apps.hash)
    np.testing.assert_array_equal(one.apps.out, two.apps.out)


def test_two_stages_of_evaluation_find_the_same_values() -> None:
    """What the last round tells apart by a few elements is what all elements tell apart."""
    last, full = Universe(MATRICES, 2), Universe(MATRICES, 3)
    last.build()
    full.build()
    n = len(last.apps)
    a = np.unique(last.apps.hash[:, 0], return_inverse=True)[1]
    pairs = {(int(p), int(q), int(r)) for p, q, r in zip(full.apps.op, full.apps.a, full.apps.b)}
    assert len(pairs) == len(full.apps)
    rows = {
        (int(p), int(q), int(r)): int(h)
        for p, q, r, h in zip(full.apps.op, full.apps.a, full.apps.b, full.apps.hash[:, 0])
    }
    wanted = [rows[int(p), int(q), int(r)]
              for p, q, r in zip(last.apps.op, last.apps.a, last.apps.b)]  # fmt: skip
    b = np.unique(np.array(wanted, np.uint64), return_inverse=True)[1]
    assert len(wanted) == n
    assert (
        len(np.unique(np.stack([a, b], axis=1), axis=0)) == len(np.unique(a)) == len(np.unique(b))
    )
