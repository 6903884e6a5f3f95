"""The knobs of a schedule template, in the manner of AutoTVM.

    cfg.define_split("tile_i", 512, parts=2, most=32)      sizes, from outside to inside
    cfg.define_knob("unroll", [1, 2, 4])
    cfg.define_reorder("order", [("i", "j"), ("j", "i")])
    cfg.define_annotate("how", ["ii", "ji"], ["none", "unroll"])

A template runs twice: once to say which knobs there are (every knob then has its first value),
and once for every candidate with the values that were chosen.  A knob is one or more holes;
all combinations of choices that pass the filters are the candidates.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from whet.core.errors import ScheduleError, check
from whet.core.types import Array
from whet.schedule.space.sketch import Population

MOST_ROWS = 1 << 17
"""Candidates that are listed; of larger spaces so many are drawn."""

Filter = Callable[[Population], Array]
SplitPolicy = Literal["factors", "power2", "tails"]

_TAILS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 1024)


@dataclass(frozen=True)
class Knob:
    """Choices as rows of integers (one column per hole), and what a row stands for."""

    holes: tuple[str, ...]
    rows: tuple[tuple[int, ...], ...]
    meanings: tuple[Any, ...]


class Config:
    """Knobs and, where they have been chosen, their values."""

    def __init__(self, chosen: Mapping[str, int] | None = None) -> None:
        self.knobs: dict[str, Knob] = {}
        self.filters: list[Filter] = []
        self._chosen = chosen

    # --------------------------------------------------------------------------- definitions
    def define_split(
        self,
        name: str,
        extent: int,
        parts: int = 2,
        *,
        policy: SplitPolicy = "factors",
        most: int | None = None,
        candidates: Sequence[Sequence[int]] | None = None,
    ) -> None:
        """Sizes of `parts` nested loops over an extent; holes are `name.1`, `name.2`, ...

        `factors` divide the extent, `power2` are powers of two that do, `tails` need not divide
        it; the outermost size follows from the others.  `most` bounds the innermost size.
        """
        check(parts >= 2, "WH2102", f"knob '{name}' needs two or more parts", kind=ScheduleError)
        if candidates is None:
            rows = _splits(extent, parts - 1, policy, most or extent)
        else:
            rows = [tuple(c[1:]) for c in candidates]
        sizes = [(-(-extent // int(np.prod(row))), *row) for row in rows]
        self._define(name, [f"{name}.{n}" for n in range(1, parts)], rows, sizes)

    def define_knob(self, name: str, candidates: Sequence[Any]) -> None:
        """Any values; integers are their own hole, others are numbered."""
        plain = all(type(c) is int for c in candidates)
        rows = [(c,) if plain else (n,) for n, c in enumerate(candidates)]
        self._define(name, [name], rows, candidates)

    def define_reorder(self, name: str, orders: Sequence[Sequence[str]]) -> None:
        """One of several orders of loops."""
        self._define(name, [name], [(n,) for n in range(len(orders))], [tuple(o) for o in orders])

    def define_annotate(
        self, name: str, loops: Sequence[str], choices: Sequence[str] = ("none", "unroll")
    ) -> None:
        """For every loop one of `none`, `unroll`, `vectorize`, `parallel`."""
        numbers = list(itertools.product(range(len(choices)), repeat=len(loops)))
        meanings = [{x: choices[n] for x, n in zip(loops, row)} for row in numbers]
        self._define(name, [f"{name}.{x}" for x in loops], numbers, meanings)

    def define_filter(self, allowed: Filter) -> None:
        """Which candidates are legal, given all at once: a column of integers per hole."""
        self.filters.append(allowed)

    def _define(
        self, name: str, holes: Sequence[str], rows: Sequence[tuple[int, ...]],
        meanings: Sequence[Any],
    ) -> None:  # fmt: skip
        check(name not in self.knobs, "WH2102", f"there are two knobs '{name}'",
              kind=ScheduleError)  # fmt: skip
        check(bool(rows), "WH2102", f"knob '{name}' has no values", kind=ScheduleError)
        self.knobs[name] = Knob(tuple(holes), tuple(rows), tuple(meanings))

    # --------------------------------------------------------------------------------- values
    def __getitem__(self, name: str) -> Any:
        """The value of a knob: sizes of a split, an order, or what the user gave."""
        check(name in self.knobs, "WH2102", f"there is no knob '{name}'",
              hint=f"knobs are {', '.join(self.knobs)}", kind=ScheduleError)  # fmt: skip
        knob = self.knobs[name]
        if self._chosen is None:
            return knob.meanings[0]
        row = tuple(self._chosen.get(hole, -1) for hole in knob.holes)
        check(row in knob.rows, "WH2102", f"knob '{name}' has no value {list(row)}",
              kind=ScheduleError)  # fmt: skip
        return knob.meanings[knob.rows.index(row)]

    def population(self) -> Population:
        """All candidates, or many of them drawn by chance where there are too many."""
        sizes = [len(k.rows) for k in self.knobs.values()]
        total = int(np.prod([float(s) for s in sizes]))
        numbers = np.arange(total)
        if total > MOST_ROWS:
            numbers = np.unique(np.random.default_rng(0).integers(total, size=MOST_ROWS))
        columns: Population = {}
        for knob, choice in zip(self.knobs.values(), np.unravel_index(numbers, sizes)):
            table = np.array(knob.rows, np.int64)
            columns |= {hole: table[choice, n] for n, hole in enumerate(knob.holes)}
        keep = np.ones(len(numbers), bool)
        for allowed in self.filters:
            keep &= np.asarray(allowed(columns), bool)
        return {hole: column[keep] for hole, column in columns.items()}


def _splits(extent: int, inner: int, policy: SplitPolicy, most: int) -> list[tuple[int, ...]]:
    """Sizes of the inner loops, outer ones first."""
    match policy:
        case "factors":
            sizes = [n for n in range(1, extent + 1) if extent % n == 0]
        case "power2":
            sizes = [1 << n for n in range(extent.bit_length()) if extent % (1 << n) == 0]
        case "tails":
            sizes = sorted({*(n for n in _TAILS if n <= extent), min(extent, most)})
    rows = itertools.product(sizes, repeat=inner)
    fitting = (r for r in rows if r[-1] <= most and int(np.prod(r)) <= extent)
    if policy == "tails":
        return list(fitting)
    return [r for r in fitting if extent % int(np.prod(r)) == 0]
