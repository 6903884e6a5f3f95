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
from whet.superopt.generate.pools import Pool
from whet.superopt.generate.tables import Tables
from whet.superopt.generate.universe import Universe
from whet.superopt.prune.canonical import canonical_text
from whet.superopt.prune.pairs import ABSENT, Pairs, equal_pairs
from whet.superopt.prune.terms import Found, Lexicon, TermReader

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
    folder: str
    shard: int
    shards: int


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
    with _folder(folder, f"{pool.name}-{key}") as here:
        if shards == 1 and folder is None:
            found = [equal_pairs(tables)]
        else:
            if not (here / "numbers.json").exists():
                tables.save(here)
            tasks = [_Shard(str(here), n, shards) for n in range(shards)]
            names = (executor or Serial()).map(_run_shard, tasks, progress=progress)
            found = [_read_pairs(Path(n)) for n in names]
    raw = np.sum([p.raw for p in found], axis=0)
    disjoint = np.sum([_pairs_by_size(p) for p in found], axis=0)
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
    return Generation(pool.name, counts, _equations(universe, found, lexicon))


def _pairs_by_size(found: Pairs) -> Array:
    sizes = (found.graphs != ABSENT).sum(axis=1)
    return np.bincount(sizes[found.pairs].max(axis=1), minlength=found.graphs.shape[1] + 1)


def _equations(
    universe: Universe, found: list[Pairs], lexicon: Lexicon
) -> dict[str, tuple[Found, ...]]:
    """The equations by canonical text, one for every combination of ranks."""
    reader = TermReader(universe, lexicon)
    chosen: dict[tuple[str, Shape], tuple[tuple[int, ...], Found]] = {}

    def offer(equation: Found, order: tuple[int, ...]) -> None:
        key = (canonical_text(equation, lexicon), equation.ranks)
        if key not in chosen or order < chosen[key][0]:
            chosen[key] = (order, equation)

    for equation in reader.identities():
        offer(equation, ())
    for pairs in found:
        graphs = pairs.graphs.tolist()
        sides = [reader.outputs(g) for g in graphs]
        for first, second in pairs.pairs.tolist():
            made = reader.pair(sides[first], sides[second])
            if made is not None:
                # Which of many is kept must not depend on the shards.
                offer(made, (*graphs[first], *graphs[second]))
    equations: dict[str, tuple[Found, ...]] = {}
    for text, ranks in sorted(chosen):
        equations[text] = (*equations.get(text, ()), chosen[text, ranks][1])
    return equations


# -------------------------------------------------------------------------------------- shards
def _run_shard(task: _Shard) -> str:
    """Find the pairs of one shard, unless its file is there; returns the file's name."""
    folder = Path(task.folder)
    path = folder / f"shard-{task.shard}-of-{task.shards}.npz"
    if not path.exists():
        pairs = equal_pairs(Tables.load(folder), shard=task.shard, shards=task.shards)
        partial = path.with_suffix(".partial.npz")
        np.savez(partial, graphs=pairs.graphs, pairs=pairs.pairs, distinct=pairs.distinct,
                 raw=pairs.raw)  # fmt: skip
        partial.rename(path)
    return str(path)


def _read_pairs(path: Path) -> Pairs:
    with np.load(path, allow_pickle=False) as file:
        return Pairs(file["graphs"], file["pairs"], int(file["distinct"]), file["raw"])


@contextmanager
def _folder(given: Path | None, name: str) -> Iterator[Path]:
    """The folder to work in: the given one, which stays, or one that goes away."""
    if given is not None:
        yield given / name
        return
    with tempfile.TemporaryDirectory(prefix="whet-generate-") as made:
        yield Path(made)
