"""Generating over a pool from beginning to end: values, graphs, equal pairs, renaming.

The walk over graphs is cut by fingerprint into shards, which bound the memory and are spread
over an executor.  With a folder, tables and finished shards are kept there, and a run that was
interrupted goes on where it was; the result does not depend on shards, workers or interruptions.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from whet.core.digest import digest_text
from whet.core.executor import Executor, Progress, Serial
from whet.core.types import Array, Shape
from whet.ops.base import Op
from whet.superopt.generate.kinds import Kind
from whet.superopt.generate.pools import Pool
from whet.superopt.generate.tables import COMPLETE, Tables
from whet.superopt.generate.universe import Universe
from whet.superopt.prune.canonical import canonical_text
from whet.superopt.prune.pairs import ABSENT, Pairs, equal_pairs
from whet.superopt.prune.reading import TermReader, identities
from whet.superopt.prune.terms import Found, Lexicon

BYTES_PER_GRAPH = 64
"""Fingerprint, applications and the order of sorting, with room for growing arrays."""
DEFAULT_MEMORY = 2 << 30


@dataclass(frozen=True, slots=True)
class Counts:
    """How many graphs and pairs of a size there were on the way.

    A pair counts by the number of operators of its larger graph.
    """

    size: int
    sequences: int
    """Orders in which the graphs can be built up: what TASO enumerates."""
    canonical: int
    """Different graphs, exchanged inputs counted apart."""
    visited: int
    """Different graphs up to exchanging inputs: what is really walked over."""
    pairs: int
    """Pairs of equal fingerprint: raw substitutions."""
    disjoint: int
    """Those without a common subgraph."""


@dataclass(frozen=True, slots=True)
class Generation:
    """The equations over one pool, up to renaming, by canonical text.

    Equations of one text hold for different ranks.
    """

    pool: str
    counts: tuple[Counts, ...]
    found: dict[str, tuple[Found, ...]]


@dataclass(frozen=True, slots=True)
class _Shard:
    """What a worker needs to know for its share of the fingerprints."""

    folder: str
    shard: int
    shards: int
    ops: tuple[Op, ...]
    """The operators of the lexicon."""
    symbols: tuple[int, ...]
    kinds: tuple[Kind, ...]


@dataclass(frozen=True, slots=True)
class _Share:
    """What a worker found: equations by canonical text and ranks, and counts by size."""

    raw: Array
    disjoint: Array
    chosen: dict[tuple[str, Shape], tuple[tuple[int, ...], Found]]


def generate(
    pool: Pool,
    size: int,
    lexicon: Lexicon,
    *,
    seed: int = 0,
    exact: bool = False,
    executor: Executor | None = None,
    threads: int = 1,
    folder: Path | None = None,
    memory: int = DEFAULT_MEMORY,
    count_sequences: bool = True,
    progress: Progress | None = None,
) -> Generation:
    """All equations between graphs of up to `size` operators over the pool, up to renaming."""
    universe = Universe(pool, size, seed=seed, exact=exact, threads=threads)
    universe.build()
    tables = universe.tables()
    sizes = range(1, size + 1)
    graphs = [tables.count(n) for n in sizes]
    shards = max(1, math.ceil(sum(v for v, _ in graphs) * BYTES_PER_GRAPH / memory))
    key = digest_text(repr(pool.inputs), str(size), str(seed), str(exact), str(shards))[:16]
    symbols = tuple(lexicon.symbol(op) for op in universe.grammar.ops)
    with _folder(folder, f"{pool.name}-{key}") as here:
        tasks = [
            _Shard(str(here), n, shards, tuple(lexicon.ops), symbols, pool.kinds)
            for n in range(shards)
        ]
        if shards == 1 and folder is None:
            shares = [_share(tables, equal_pairs(tables), tasks[0])]
        else:
            if not (here / COMPLETE).exists():
                tables.save(here)
            shares = (executor or Serial()).map(_run_shard, tasks, progress=progress)
    raw = np.sum([s.raw for s in shares], axis=0)
    disjoint = np.sum([s.disjoint for s in shares], axis=0)
    counts = tuple(
        Counts(
            n,
            tables.sequences(n) if count_sequences else 0,
            canonical,
            visited,
            int(raw[n]),
            int(disjoint[n]),
        )
        for n, (visited, canonical) in zip(sizes, graphs)
    )
    return Generation(pool.name, counts, _merged(universe, shares, lexicon))


def _merged(
    universe: Universe, shares: list[_Share], lexicon: Lexicon
) -> dict[str, tuple[Found, ...]]:
    """The equations of all shards and the identities, by canonical text."""
    chosen = _Chosen(lexicon)
    for equation in identities(universe, lexicon):
        chosen.offer(equation, ())
    for share in shares:
        for key, (order, equation) in share.chosen.items():
            chosen.put(key, order, equation)
    equations: dict[str, tuple[Found, ...]] = {}
    for text, ranks in sorted(chosen.found):
        equations[text] = (*equations.get(text, ()), chosen.found[text, ranks][1])
    return equations


class _Chosen:
    """One equation for every canonical text and combination of ranks.

    Which of many is kept must not depend on shards: the one whose applications come first.
    """

    def __init__(self, lexicon: Lexicon) -> None:
        self.lexicon = lexicon
        self.found: dict[tuple[str, Shape], tuple[tuple[int, ...], Found]] = {}

    def offer(self, equation: Found, order: tuple[int, ...]) -> None:
        self.put((canonical_text(equation, self.lexicon), equation.ranks), order, equation)

    def put(self, key: tuple[str, Shape], order: tuple[int, ...], equation: Found) -> None:
        if key not in self.found or order < self.found[key][0]:
            self.found[key] = (order, equation)


# -------------------------------------------------------------------------------------- shards
def _share(tables: Tables, pairs: Pairs, task: _Shard) -> _Share:
    """The equations of the pairs, up to renaming."""
    lexicon = Lexicon()
    for op in task.ops:
        lexicon.symbol(op)
    used = np.unique(pairs.graphs)
    reader = TermReader(tables, used[used != ABSENT], task.symbols, task.kinds)
    chosen = _Chosen(lexicon)
    graphs = pairs.graphs.tolist()
    sides = [reader.outputs(g) for g in graphs]
    for first, second in pairs.pairs.tolist():
        equation = reader.pair(sides[first], sides[second])
        if equation is not None:
            chosen.offer(equation, (*graphs[first], *graphs[second]))
    sizes = (pairs.graphs != ABSENT).sum(axis=1)
    larger = sizes[pairs.pairs].max(axis=1, initial=0)
    return _Share(pairs.raw, np.bincount(larger, minlength=tables.size + 1), chosen.found)


def _run_shard(task: _Shard) -> _Share:
    """The share of one shard; its pairs are kept in a file and read from there if it exists."""
    folder = Path(task.folder)
    tables = Tables.load(folder)
    path = folder / f"shard-{task.shard}-of-{task.shards}.npz"
    if not path.exists():
        pairs = equal_pairs(tables, shard=task.shard, shards=task.shards)
        partial = path.with_suffix(".partial.npz")
        np.savez(partial, graphs=pairs.graphs, pairs=pairs.pairs, distinct=pairs.distinct,
                 raw=pairs.raw)  # fmt: skip
        partial.rename(path)
    with np.load(path, allow_pickle=False) as file:
        pairs = Pairs(file["graphs"], file["pairs"], int(file["distinct"]), file["raw"])
    return _share(tables, pairs, task)


@contextmanager
def _folder(given: Path | None, name: str) -> Iterator[Path]:
    """The folder to work in: the given one, which stays, or one that goes away."""
    if given is not None:
        yield given / name
        return
    with tempfile.TemporaryDirectory(prefix="whet-generate-") as made:
        yield Path(made)
