"""Boosted trees as text, and what they say about many rows at once.

    columns each stages
    tree each<=1.5 -0.02 stages<=2.5 0.07 0.01

A tree is written from its root on: a question, what follows if the answer is yes, what follows if
it is no.  Its value for a row is that of the leaf that the answers lead to, and the trees' values
are added up.

Trees are not walked through.  A `no` rules out the leaves on the side of `yes`, and the first leaf
that no answer has ruled out is where a walk would end ("QuickScorer", SIGIR 2015).  What a column
rules out in all trees depends only on how many thresholds its value exceeds, so it is one row of a
table, and rows of all columns are combined by `and`: a few milliseconds for thousands of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from whet.core.errors import check, fail
from whet.core.types import Array

MOST_LEAVES = 8
"""Leaves of a tree are the bits of a byte."""
TOGETHER = 512
"""Rows whose leaves are looked up at once: their arrays stay in the caches."""
_BYTES = 1 << MOST_LEAVES
_LOWEST = [(n & -n).bit_length() - 1 for n in range(1, _BYTES)]
"""The lowest bit of every byte that has one: the first of the leaves that are left."""


@dataclass(frozen=True)
class Question:
    """Whether a column is at most the threshold; `no` rules out leaves, given as bits."""

    tree: int
    column: int
    threshold: float
    ruled_out: int


@dataclass(frozen=True, eq=False)
class Table:
    """What a column rules out."""

    column: int
    thresholds: Array
    """Sorted."""
    left: Array
    """[thresholds + 1, trees]: leaves that are left when so many thresholds are exceeded."""


@dataclass(frozen=True, eq=False)
class Trees:
    """The sum of trees."""

    columns: tuple[str, ...]
    tables: tuple[Table, ...]
    values: Array
    """[trees, bytes]: of the first leaf that is left."""

    def predict(self, matrix: Array) -> Array:
        """[rows], of a matrix with these columns."""
        result = np.empty(len(matrix))
        for start in range(0, len(matrix), TOGETHER):
            part = slice(start, start + TOGETHER)
            result[part] = self._predict(matrix[part])
        return result

    def _predict(self, matrix: Array) -> Array:
        left = np.full((len(matrix), len(self.values)), _BYTES - 1, np.uint8)
        for table in self.tables:
            exceeded = np.searchsorted(table.thresholds, matrix[:, table.column], side="left")
            left &= table.left.take(exceeded, axis=0)
        places = left + np.arange(len(self.values)) * _BYTES
        return np.asarray(self.values.reshape(-1).take(places).sum(axis=1))


def read_trees(columns: Sequence[str], lines: Sequence[str]) -> Trees:
    """Trees over these columns, a line each; `WH2122` if a line is something else."""
    questions: list[Question] = []
    values = np.zeros((len(lines), _BYTES))
    for number, line in enumerate(lines):
        reader = _Reader(number, tuple(columns), iter(line.split()))
        reader.subtree()
        check(next(reader.words, None) is None, "WH2122", f"tree {number} goes on behind its end")
        questions += reader.questions
        leaves = np.array(reader.leaves + [0.0] * (MOST_LEAVES - len(reader.leaves)))
        values[number, 1:] = leaves[_LOWEST]
    asked = sorted({q.column for q in questions})
    tables = tuple(
        _table(c, [q for q in questions if q.column == c], len(lines)) for c in asked
    )  # fmt: skip
    return Trees(tuple(columns), tables, values)


def _table(column: int, questions: Sequence[Question], trees: int) -> Table:
    thresholds = np.array(sorted({q.threshold for q in questions}))
    left = np.full((len(thresholds) + 1, trees), _BYTES - 1, np.uint8)
    for q in questions:
        exceeded = int(np.searchsorted(thresholds, q.threshold)) + 1
        left[exceeded:, q.tree] &= _BYTES - 1 - q.ruled_out
    return Table(column, thresholds, left)


class _Reader:
    """One tree, word by word."""

    def __init__(self, number: int, columns: Sequence[str], words: Iterator[str]) -> None:
        self.number, self.columns, self.words = number, columns, words
        self.questions: list[Question] = []
        self.leaves: list[float] = []

    def subtree(self) -> None:
        word = next(self.words, None)
        if word is None:
            self._fail("ends too early")
        name, is_question, bound = word.partition("<=")
        if not is_question:
            if len(self.leaves) == MOST_LEAVES:
                self._fail(f"has more than {MOST_LEAVES} leaves")
            self.leaves.append(self._number(word))
            return
        if name not in self.columns:
            self._fail(f"asks about '{name}', which is no column")
        first = len(self.leaves)
        self.subtree()
        yes = (1 << len(self.leaves)) - (1 << first)
        column = self.columns.index(name)
        self.questions.append(Question(self.number, column, self._number(bound), yes))
        self.subtree()

    def _number(self, word: str) -> float:
        try:
            value = float(word)
        except ValueError:
            self._fail(f"has '{word}' where a number should be")
        if not np.isfinite(value):
            self._fail(f"has '{word}' where a number should be")
        return value

    def _fail(self, what: str) -> NoReturn:
        fail("WH2122", f"tree {self.number} {what}")
