"""The tables that a walk over graphs reads; processes can share them through a folder."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from whet.core.types import Array
from whet.superopt.generate.walk import walk

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
    stands_for: float
    connected: int


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
        self, size: int, *, part: int = 0, parts: int = 1, shard: int = 0, shards: int = 1
    ) -> Graphs:
        """The graphs of this size from one part of the roots, in one shard of fingerprints."""
        found = self._walk(size, part=part, parts=parts, shard=shard, shards=shards, store=True)
        visited, stands_for, connected, prints, apps = found[:5]
        return Graphs(prints, apps, visited, stands_for, connected)

    def new_pairs(self, size: int) -> tuple[Array, Array, Array, Array]:
        """The table of pairs (keys, numbers) with those that graphs of this size bring, and
        these themselves."""
        keys, numbers, a, b = self._walk(size, collect=True)[5:]
        return keys, numbers, a, b

    def count(self, size: int) -> tuple[int, int]:
        """How many graphs of this size there are, exchanged inputs counted once and apart."""
        visited, stands_for, *_ = self._walk(size)
        return visited, round(stands_for)

    def sequences(self, size: int) -> int:
        """In how many orders the graphs of this size can be built up: what TASO enumerates."""
        return round(self._walk(size, ordered=False)[1])

    def _walk(
        self, size: int, *, collect: bool = False, ordered: bool = True, part: int = 0,
        parts: int = 1, shard: int = 0, shards: int = 1, store: bool = False,
    ) -> tuple[int, float, int, Array, Array, Array, Array, Array, Array]:  # fmt: skip
        found: tuple[int, float, int, Array, Array, Array, Array, Array, Array] = walk(
            size, self.size, collect, ordered, self.app_a, self.app_b, self.app_out,
            self.app_hash, self.pair_start, self.pair_count, self.base, self.inputs,
            self.value_hash, self.surface, self.fits, self.keys, self.numbers, self.pairs,
            self.holes, self.multiplicity, part, parts, shard, shards, store,
        )  # fmt: skip
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
