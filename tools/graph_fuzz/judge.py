"""Whether results are what they may be.

An output's element may be what the interpreter gives in double precision, give or take some
times the distance of its other runs; an integer or a truth value must be what one of the runs
gives, or between two of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tools.graph_fuzz.evaluate import Run
from tools.graph_fuzz.rounding import ROUNDING, TINY, largest
from whet.core.dtypes import DType, dtype_of
from whet.core.types import Array

MARGIN = 6.0
"""How often the distance of the runs is allowed."""
ROUGH = 1e-4
"""Of the largest element: what is allowed where meaning is compared, and not accuracy."""
LOOSE = 0.02
"""An element that may be off by more than this share of the largest one says little."""


@dataclass(frozen=True)
class Mismatch:
    """The first element that is not what it may be."""

    output: int
    where: tuple[int, ...]
    got: Any
    expected: Any
    tolerance: float
    count: int
    size: int

    def __str__(self) -> str:
        if self.where == () and self.size == 0:
            return f"output {self.output}: {self.got}, expected {self.expected}"
        where = f"output {self.output}{list(self.where)}"
        expected = f"{self.expected} give or take {self.tolerance:.3g}"
        return f"{where}: {self.got}, expected {expected}; {self.count} of {self.size} differ"


class Allowed:
    """What one output may be, given several runs of the interpreter."""

    def __init__(self, runs: Sequence[Array], dtype: DType) -> None:
        self.dtype = dtype
        self.shape = runs[0].shape
        self.settled = all(r.shape == self.shape for r in runs)
        """False when the shape itself depends on rounding."""
        if not self.settled:
            return
        self.is_float = dtype.name in ROUNDING
        if self.is_float:
            self._allow_floats([r.astype(np.float64) for r in runs])
        else:
            wide = [_comparable(r, dtype) for r in runs]
            self.centre = wide[0]
            self.low, self.high = np.minimum.reduce(wide), np.maximum.reduce(wide)

    def _allow_floats(self, runs: list[Array]) -> None:
        centre = runs[0]
        with np.errstate(all="ignore"):
            spread = np.maximum.reduce([np.abs(r - centre) for r in runs])
            kinds = np.stack([_kind(r) for r in runs])
            self.free = (kinds != kinds[0]).any(0)
            floor = 3 * ROUNDING[self.dtype.name] * np.abs(centre) + 2 * TINY[self.dtype.name]
            self.tolerance = np.where(np.isfinite(centre), MARGIN * spread + floor, 0.0)
        self.centre = centre

    def loose(self) -> float:
        """The share of elements of which little is said."""
        if not self.settled:
            return 1.0
        if not self.centre.size:
            return 0.0
        if not self.is_float:
            return float((self.low != self.high).mean())
        limit = LOOSE * largest(self.centre)
        return float((self.free | (self.tolerance > max(limit, 0))).mean()) if limit else 0.0

    def wrong(self, got: Array, roughly: bool = False) -> Array | str:
        """Which elements are not what they may be, or what else is wrong."""
        if dtype_of(got) != self.dtype:
            return f"element type {dtype_of(got)}"
        if not self.settled:
            return "another rank" if got.ndim != len(self.shape) else np.zeros((), np.bool_)
        if got.shape != self.shape:
            return f"shape {list(got.shape)}"
        if not self.is_float:
            wide = _comparable(got, self.dtype)
            return ~((wide >= self.low) & (wide <= self.high))
        wide = got.astype(np.float64)
        more = ROUGH * largest(self.centre) if roughly else 0.0
        with np.errstate(all="ignore"):
            near = np.abs(wide - self.centre) <= self.tolerance + more
            same = (wide == self.centre) | (np.isnan(wide) & np.isnan(self.centre))
            return ~(near | same | self.free)

    def mismatch(self, output: int, got: Array, roughly: bool = False) -> Mismatch | None:
        wrong = self.wrong(got, roughly)
        if isinstance(wrong, str):
            return Mismatch(output, (), wrong, f"{self.dtype}{list(self.shape)}", 0.0, 0, 0)
        if not wrong.any():
            return None
        where = tuple(int(n) for n in np.argwhere(wrong)[0])
        tolerance = float(self.tolerance[where]) if self.is_float else 0.0
        return Mismatch(output, where, str(got[where]), str(self.centre[where]), tolerance,
                        int(wrong.sum()), int(wrong.size))  # fmt: skip


def _kind(array: Array) -> Array:
    """0 for numbers, 1 for NaN, 2 and 3 for infinities."""
    return np.where(
        np.isnan(array), 1, np.where(array == np.inf, 2, np.where(array == -np.inf, 3, 0))
    )


def _comparable(array: Array, dtype: DType) -> Array:
    """Integers as they are; truth values and small types as numbers; NaN as one more."""
    if dtype.is_float:
        wide = array.astype(np.float64)
        return np.where(np.isnan(wide), np.inf, wide)
    if dtype.is_integer and dtype.bits < 8:
        return array.astype(np.int8)
    return array.astype(np.int8) if dtype.kind == "bool" else array


@dataclass(frozen=True)
class Expectation:
    """What all outputs may be."""

    outputs: tuple[Allowed, ...]

    @staticmethod
    def of(runs: Sequence[Run]) -> Expectation:
        declared = [dtype_of(a) for a in runs[1]]
        parts = zip(*runs, strict=True)
        return Expectation(tuple(Allowed(p, d) for p, d in zip(parts, declared)))

    def mismatch(self, results: Sequence[Array], roughly: bool = False) -> Mismatch | None:
        """The first thing that is wrong, if any; `roughly` compares meaning, not accuracy."""
        if len(results) != len(self.outputs):
            return Mismatch(0, (), f"{len(results)} outputs", len(self.outputs), 0.0, 0, 0)
        found = (a.mismatch(n, np.asarray(r), roughly)
                 for n, (a, r) in enumerate(zip(self.outputs, results)))  # fmt: skip
        return next((m for m in found if m is not None), None)

    def loose(self) -> float:
        """The mean share of elements of which little is said."""
        return float(np.mean([a.loose() for a in self.outputs])) if self.outputs else 0.0
