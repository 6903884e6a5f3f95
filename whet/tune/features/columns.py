"""Columns of features with names."""

from __future__ import annotations

import numpy as np

from whet.core.types import Array


class Columns:
    """Collects columns in order; all have one number per candidate."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.names: list[str] = []
        self.values: list[Array] = []

    def add(self, name: str, value: Array | float) -> None:
        self.names.append(name)
        self.values.append(np.asarray(value, np.float32))

    def size(self, name: str, value: Array | float) -> None:
        """A magnitude, of which only the order matters: log2(1 + x)."""
        self.add(name, np.log2(1.0 + np.asarray(value, np.float32)))

    def ratio(self, name: str, value: Array | float, by: Array | float) -> None:
        """log2 of a quotient; 0 where either side is nothing."""
        above = np.maximum(np.asarray(value, np.float32), np.float32(1e-12))
        below = np.maximum(np.asarray(by, np.float32), np.float32(1e-12))
        self.add(name, np.log2(above / below))

    def one_of(self, name: str, value: Array, kinds: tuple[str, ...]) -> None:
        """One column per kind, 1 where the value is the kind's number."""
        for number, kind in enumerate(kinds):
            self.add(f"{name} {kind}", value == number)

    def matrix(self) -> Array:
        """[candidates, columns]"""
        rows = np.empty((len(self.values), self.count), np.float32)
        for row, value in zip(rows, self.values):
            row[:] = value
        return np.ascontiguousarray(rows.T)
