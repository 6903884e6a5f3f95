"""The tables that a walk over graphs reads; processes can share them through a folder."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from whet.core.types import Array
from whet.superopt.generate.marks import Marks
from whet.superopt.generate.pair_table import pair_members
from whet.superopt.generate.placing import COLLECT, COUNT, MARK, STORE, STORE_MARKED
from whet.superopt.generate.walk import Share, Walked, World, walk

COMPLETE = "numbers.json"
"""The file that is written last and marks a folder complete."""


@dataclass(frozen=True, slots=True)
class Graphs:
    """The graphs of one size that were asked for.

    The first application of a graph that is not connected is stored as its complement.
    """

    prints: Array
    apps: Array
    visited: int


@dataclass(frozen=True, slots=True)
class Numbers:
    """The number of graphs of one size."""

    visited: int
    """Up to exchanging inputs of one kind."""
    canonical: int
    """With exchanged inputs counted apart."""
    sequences: int
    """Orders in which all of them can be built up: what TASO enumerates."""


@dataclass(frozen=True, slots=True)
class Tables:
    """Applications, pairs and values as columns; see `universe` for how they come about."""

    size: int
    inputs: int
    base: int
    pairs: int
    app_op: Array
    app_a: Array
    app_b: Array
    app_out: Array
    app_hash: Array
    pair_start: Array
    pair_count: Array
    value_hash: Array
    surface: Array
    fits: Array
    keys: Array
    numbers: Array
    holes: Array
    multiplicity: Array

    # -------------------------------------------------------------------------------- walking
    def graphs(
        self,
        size: int,
        *,
        part: int = 0,
        parts: int = 1,
        shard: int = 0,
        shards: int = 1,
        marks: Marks | None = None,
    ) -> Graphs:
        """The graphs of this size from one part of the roots, in one shard of fingerprints.

        With marks, only those whose fingerprint may have been marked twice.
        """
        task = STORE if marks is None else STORE_MARKED
        found = self._walk(size, task, part, parts, shard, shards, marks)
        return Graphs(found.prints, found.apps, found.visited)

    def mark(self, size: int, marks: Marks, *, shard: int = 0, shards: int = 1) -> None:
        """Mark the fingerprints of the graphs of this size."""
        self._walk(size, MARK, shard=shard, shards=shards, marks=marks)

    def new_pairs(self, size: int) -> tuple[Array, Array, Array, Array]:
        """The table of pairs (keys, numbers) with those that graphs of this size bring, and
        these themselves."""
        found = self._walk(size, COLLECT)
        return found.keys, found.numbers, *pair_members(found.new)

    def count(self, size: int) -> Numbers:
        """The number of graphs of this size."""
        found = self._walk(size, COUNT)
        return Numbers(found.visited, round(found.stands_for), round(found.sequences))

    def _walk(
        self, size: int, task: int, part: int = 0, parts: int = 1, shard: int = 0,
        shards: int = 1, marks: Marks | None = None,
    ) -> Walked:  # fmt: skip
        marks = marks or Marks(1)
        world = World(
            self.size, self.inputs, self.base, self.app_a, self.app_b, self.app_out,
            self.app_hash, self.pair_start, self.pair_count, self.value_hash, self.surface,
            self.fits, self.holes, self.multiplicity,
        )  # fmt: skip
        share = Share(task, size, part, parts, shard, shards, marks.shift, marks.seen, marks.marked)
        found: Walked = walk(world, share, self.keys, self.numbers, self.pairs)
        return found

    # -------------------------------------------------------------------------------- storing
    def save(self, folder: Path) -> None:
        """Write all columns; the file of numbers comes last and marks the folder complete."""
        folder.mkdir(parents=True, exist_ok=True)
        numbers = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, int):
                numbers[field.name] = value
            else:
                np.save(folder / f"{field.name}.npy", value, allow_pickle=False)
        (folder / COMPLETE).write_text(json.dumps(numbers))

    @classmethod
    def load(cls, folder: Path) -> Tables:
        """The tables of a folder; columns are mapped, not read."""
        numbers = json.loads((folder / COMPLETE).read_text())
        columns: dict[str, Any] = {
            field.name: np.asarray(
                np.load(folder / f"{field.name}.npy", mmap_mode="c", allow_pickle=False)
            )
            for field in dataclasses.fields(cls)
            if field.name not in numbers
        }
        return cls(**numbers, **columns)
