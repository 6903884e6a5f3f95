"""Generating over a pool from beginning to end: values, graphs, equal pairs, renaming.

The walk over graphs is cut by fingerprint into shards, which bound the memory and are spread
over an executor.  With a folder, tables and finished shards are kept there, and a run that was
interrupted goes on where it was; the result does not depend on shards, workers or interruptions.
"""

from __future__ import annotations

import dataclasses
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


@dataclass(slots=True)
class _Steps:
    """Progress over the rounds of evaluation and counting, and then over the shards."""

    before: int
    report: Progress | None
    done: int = 0

    def advance(self) -> None:
        self.done += 1
        if self.report is not None:
            self.report(self.done, self.before + 1)

    def then(self, done: int, total: int) -> None:
        if self.report is not None:
            self.report(self.before + done, self.before + total)


@dataclass(frozen=True, slots=True)
class _Shard:
    """What a worker needs to know for its share of the fingerprints."""

    folder: str
    graphs: int
    """How many there are in all shards."""
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
class _Share:
    """What a worker found: equations by key (see `structure`), and counts by size."""

    raw: Array
    disjoint: Array
    chosen: dict[int, _Choice]


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
        if shards == 1 and folder is None:
            shares = [_share(tables, _shard_pairs(tables, tasks[0]), tasks[0])]
        else:
            if not (here / COMPLETE).exists():
                tables.save(here)
            del tables
            shares = (executor or Serial()).map(_run_shard, tasks, progress=steps.then)
    raw = np.sum([s.raw for s in shares], axis=0)
    disjoint = np.sum([s.disjoint for s in shares], axis=0)
    counts = tuple(
        Counts(n, found.sequences, found.canonical, found.visited, int(raw[n]), int(disjoint[n]))
        for n, found in enumerate(numbers, start=1)
    )
    return Generation(pool.name, counts, _merged(trivial, shares, lexicon))


def _merged(
    trivial: list[Found], shares: list[_Share], lexicon: Lexicon
) -> dict[str, tuple[Found, ...]]:
    """The equations of all shards and the identities, by canonical text."""
    # Which of many is kept must not depend on shards: first by key, then by text and ranks.
    by_key: dict[int, _Choice] = {}
    for share in shares:
        for key, choice in share.chosen.items():
            if key not in by_key or choice[0] < by_key[key][0]:
                by_key[key] = choice
    choices = [((), canonical_text(equation, lexicon), equation) for equation in trivial]
    kept: dict[tuple[str, Shape], tuple[Order, Found]] = {}
    for order, text, equation in (*choices, *by_key.values()):
        place = (text, equation.ranks)
        if place not in kept or order < kept[place][0]:
            kept[place] = (order, equation)
    equations: dict[str, tuple[Found, ...]] = {}
    for text, ranks in sorted(kept):
        equations[text] = (*equations.get(text, ()), kept[text, ranks][1])
    return equations


# -------------------------------------------------------------------------------------- shards
@dataclass(frozen=True, slots=True)
class _ShardPairs:
    """The pairs of a shard, one for every key, and how many there were."""

    graphs: Array
    pairs: Array
    keys: Array
    raw: Array
    disjoint: Array


def _shard_pairs(tables: Tables, task: _Shard) -> _ShardPairs:
    found = equal_pairs(tables, task.graphs // task.shards, shard=task.shard, shards=task.shards)
    operators = (found.graphs != ABSENT).sum(axis=1)
    larger = operators[found.pairs].max(axis=1, initial=0)
    disjoint = np.bincount(larger, minlength=tables.size + 1)
    keys = pair_keys(tables, found.graphs, found.pairs, task.symbols, task.kinds, task.lexicon())
    # Of several pairs of a key, the one whose applications come first.
    columns = found.graphs[found.pairs].reshape(len(found.pairs), 2 * tables.size)
    order = np.lexsort((*columns.T[::-1], keys))
    first = order[np.diff(keys[order], prepend=NO_KEY) != 0]
    used, rows = np.unique(found.pairs[first], return_inverse=True)
    rows = rows.reshape(-1, 2)
    return _ShardPairs(found.graphs[used], rows, keys[first], found.raw, disjoint)


def _share(tables: Tables, found: _ShardPairs, task: _Shard) -> _Share:
    """The equations of the pairs, up to renaming."""
    used = np.unique(found.graphs)
    reader = TermReader(tables, used[used != ABSENT], task.symbols, task.kinds)
    lexicon = task.lexicon()
    graphs = found.graphs.tolist()
    sides = [reader.outputs(g) for g in graphs]
    chosen: dict[int, _Choice] = {}
    for (first, second), key in zip(found.pairs.tolist(), found.keys.tolist(), strict=True):
        equation = reader.pair(sides[first], sides[second])
        assert equation is not None, "a key for graphs of different outputs"
        order = (*graphs[first], *graphs[second])
        chosen[key] = (order, canonical_text(equation, lexicon), equation)
    return _Share(found.raw, found.disjoint, chosen)


def _run_shard(task: _Shard) -> _Share:
    """The share of one shard; its pairs are kept in a file and read from there if it exists."""
    folder = Path(task.folder)
    tables = Tables.load(folder)
    path = folder / f"shard-{task.shard}-of-{task.shards}.npz"
    if not path.exists():
        found = _shard_pairs(tables, task)
        partial = path.with_suffix(".partial.npz")
        np.savez(partial, **{f.name: getattr(found, f.name) for f in dataclasses.fields(found)})
        partial.rename(path)
    with np.load(path, allow_pickle=False) as file:
        found = _ShardPairs(**file)
    return _share(tables, found, task)


@contextmanager
def _folder(given: Path | None, name: str) -> Iterator[Path]:
    """The folder to work in: the given one, which stays, or one that goes away."""
    if given is not None:
        yield given / name
        return
    with tempfile.TemporaryDirectory(prefix="whet-generate-") as made:
        yield Path(made)
