"""Generating over a pool from beginning to end: values, graphs, equal pairs, renaming.

The walk over graphs is cut by fingerprint into shards, which bound the memory and are spread
over an executor.  With a folder, tables and finished shards are kept there, and a run that was
interrupted goes on where it was; the result does not depend on shards, workers or interruptions.
"""

from __future__ import annotations

import dataclasses
import itertools
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
from whet.superopt.prune.pairs import ABSENT, equal_pairs
from whet.superopt.prune.reading import TermReader, identities
from whet.superopt.prune.structure import NO_KEY, pair_keys
from whet.superopt.prune.terms import Found, Lexicon

BYTES_PER_GRAPH = 32
"""Marks for all graphs; fingerprint, applications and order of those that are not alone."""
DEFAULT_MEMORY = 2 << 30
"""What a shard may need beside the tables."""
BATCH = 1 << 14
"""Pairs whose terms one task reads."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of the graphs and pairs of a size on the way.

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


@dataclass(slots=True)
class _Steps:
    """Progress over the rounds of evaluation and counting, then the shards, then the reading."""

    before: int
    report: Progress | None
    shards: int = 1
    done: int = 0

    def advance(self) -> None:
        self._tell(self.done + 1)

    def in_shards(self, done: int, total: int) -> None:
        self._tell(self.before + done)

    def finish(self) -> None:
        self._tell(self.before + self.shards + 1)

    def _tell(self, done: int) -> None:
        self.done = done
        if self.report is not None:
            self.report(done, self.before + self.shards + 1)


@dataclass(frozen=True, slots=True)
class _Shard:
    """The knowledge of a worker for its share of the fingerprints."""

    folder: str
    graphs: int
    """The number in all shards."""
    shard: int
    shards: int
    ops: tuple[Op, ...]
    """The operators of the lexicon."""
    symbols: tuple[int, ...]
    kinds: tuple[Kind, ...]

    def lexicon(self) -> Lexicon:
        made = Lexicon()
        for op in self.ops:
            made.symbol(op)
        return made


@dataclass(frozen=True, slots=True)
class _ShardPairs:
    """The pairs of a shard, one for every key (see `structure`), and how many there were."""

    keys: Array
    sides: Array
    """[n, 2, size] the applications of both graphs, ended by ABSENT."""
    raw: Array
    disjoint: Array


@dataclass(frozen=True, slots=True)
class _Batch:
    """Pairs of different keys whose terms are to be read."""

    shard: _Shard
    sides: Array


Order = tuple[int, ...]
"""The applications of both sides: of many pairs for one equation, the first is kept."""
_Choice = tuple[Order, str, Found]
"""An equation with its canonical text."""


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
    progress: Progress | None = None,
) -> Generation:
    """All equations between graphs of up to `size` operators over the pool, up to renaming."""
    steps = _Steps(size + 1, progress)
    universe = Universe(pool, size, seed=seed, exact=exact, threads=threads)
    universe.build(steps.advance)
    tables = universe.tables()
    numbers = [tables.count(n) for n in range(1, size + 1)]
    graphs = sum(n.visited for n in numbers)
    steps.advance()
    shards = max(1, math.ceil(graphs * BYTES_PER_GRAPH / memory))
    letters = [x.name for x in pool.alphabet.letters]
    key = digest_text(repr((pool.inputs, letters, size, seed, exact, shards)))[:16]
    symbols = tuple(lexicon.symbol(op) for op in universe.grammar.ops)
    trivial = list(identities(universe, lexicon))
    # The elements of values are not needed any more.
    del universe
    with _folder(folder, f"{pool.name}-{key}") as here:
        tasks = [
            _Shard(str(here), graphs, n, shards, tuple(lexicon.ops), symbols, pool.kinds)
            for n in range(shards)
        ]
        steps.shards = shards
        if shards == 1 and folder is None:
            shares = [_shard_pairs(tables, tasks[0])]
            choices = _read(tables, _Batch(tasks[0], shares[0].sides))
        else:
            if not (here / COMPLETE).exists():
                tables.save(here)
            del tables
            workers = executor or Serial()
            workers.map(_run_shard, tasks, progress=steps.in_shards)
            # Most equations are in several shards: they are read once.
            shares = [_stored(task) for task in tasks]
            sides = _first_of_keys(shares)
            batches = [_Batch(tasks[0], sides[n : n + BATCH]) for n in range(0, len(sides), BATCH)]
            choices = [c for some in workers.map(_run_batch, batches) for c in some]
    steps.finish()
    raw = np.sum([s.raw for s in shares], axis=0)
    disjoint = np.sum([s.disjoint for s in shares], axis=0)
    counts = tuple(
        Counts(n, found.sequences, found.canonical, found.visited, int(raw[n]), int(disjoint[n]))
        for n, found in enumerate(numbers, start=1)
    )
    return Generation(pool.name, counts, _merged(trivial, choices, lexicon))


def _merged(
    trivial: list[Found], choices: list[_Choice], lexicon: Lexicon
) -> dict[str, tuple[Found, ...]]:
    """The equations of all pairs and the identities, by canonical text."""
    first = [((), canonical_text(equation, lexicon), equation) for equation in trivial]
    kept: dict[tuple[str, Shape], tuple[Order, Found]] = {}
    for order, text, equation in itertools.chain(first, choices):
        place = (text, equation.ranks)
        if place not in kept or order < kept[place][0]:
            kept[place] = (order, equation)
    equations: dict[str, tuple[Found, ...]] = {}
    for text, ranks in sorted(kept):
        equations[text] = (*equations.get(text, ()), kept[text, ranks][1])
    return equations


# -------------------------------------------------------------------------------------- shards
def _shard_pairs(tables: Tables, task: _Shard) -> _ShardPairs:
    found = equal_pairs(tables, task.graphs // task.shards, shard=task.shard, shards=task.shards)
    operators = (found.graphs != ABSENT).sum(axis=1)
    larger = operators[found.pairs].max(axis=1, initial=0)
    disjoint = np.bincount(larger, minlength=tables.size + 1)
    keys = pair_keys(tables, found.graphs, found.pairs, task.symbols, task.kinds, task.lexicon())
    sides = found.graphs[found.pairs]
    first = _firsts(keys, sides)
    return _ShardPairs(keys[first], sides[first], found.raw, disjoint)


def _firsts(keys: Array, sides: Array) -> Array:
    """Of several pairs of a key, the number of the one whose applications come first."""
    columns = sides.reshape(len(sides), sides.shape[1] * sides.shape[2])
    order = np.lexsort((*columns.T[::-1], keys))
    first: Array = order[np.diff(keys[order], prepend=NO_KEY) != 0]
    return first


def _first_of_keys(shares: list[_ShardPairs]) -> Array:
    """The pairs of all shards, one for every key."""
    sides = np.concatenate([s.sides for s in shares])
    return np.asarray(sides[_firsts(np.concatenate([s.keys for s in shares]), sides)])


def _read(tables: Tables, batch: _Batch) -> list[_Choice]:
    """The equations of the pairs, with their texts."""
    used = np.unique(batch.sides)
    task = batch.shard
    reader = TermReader(tables, used[used != ABSENT], task.symbols, task.kinds)
    lexicon = task.lexicon()
    # A graph is in two pairs on average.
    graphs, rows = np.unique(batch.sides.reshape(-1, tables.size), axis=0, return_inverse=True)
    outputs = [reader.outputs(g) for g in graphs.tolist()]
    orders = batch.sides.reshape(-1, 2 * tables.size).tolist()
    choices = []
    for order, (first, second) in zip(orders, rows.reshape(-1, 2).tolist(), strict=True):
        equation = reader.pair(outputs[first], outputs[second])
        assert equation is not None, "a key for graphs of different outputs"
        choices.append((tuple(order), canonical_text(equation, lexicon), equation))
    return choices


def _run_batch(batch: _Batch) -> list[_Choice]:
    return _read(Tables.load(Path(batch.shard.folder)), batch)


def _run_shard(task: _Shard) -> None:
    """Store the pairs of one shard, if they are not stored yet."""
    path = _path(task)
    if not path.exists():
        found = _shard_pairs(Tables.load(path.parent), task)
        partial = path.with_suffix(".partial.npz")
        np.savez(partial, **{f.name: getattr(found, f.name) for f in dataclasses.fields(found)})
        partial.rename(path)


def _stored(task: _Shard) -> _ShardPairs:
    with np.load(_path(task), allow_pickle=False) as file:
        return _ShardPairs(**file)


def _path(task: _Shard) -> Path:
    return Path(task.folder) / f"shard-{task.shard}-of-{task.shards}.npz"


@contextmanager
def _folder(given: Path | None, name: str) -> Iterator[Path]:
    """The folder to work in: the given one, which stays, or one that goes away."""
    if given is not None:
        yield given / name
        return
    with tempfile.TemporaryDirectory(prefix="whet-generate-") as made:
        yield Path(made)
