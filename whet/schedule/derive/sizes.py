"""Sizes that depend on holes: extents of loops and steps of indices, for a whole population.

Ceil(512, Hole("i.1"))         how many tiles of size i.1 cover 512
value(size, {"i.1": [6, 8]})   ->  [86, 64]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from whet.core.types import Array
from whet.schedule.program.steps import Hole


@dataclass(frozen=True)
class Times:
    left: Size
    right: Size


@dataclass(frozen=True)
class Ceil:
    """total / by, rounded up"""

    total: Size
    by: Size


@dataclass(frozen=True)
class Plus:
    left: Size
    right: Size


@dataclass(frozen=True)
class Stride:
    """How far the first tile of a loop is from the second, which is moved back where it is the
    last and would end behind the edge."""

    total: Size
    by: Size


Size = int | Hole | Times | Ceil | Plus | Stride


def times(left: Size, right: Size) -> Size:
    if isinstance(left, int) and isinstance(right, int):
        return left * right
    if left == 1 or right == 0:
        return right
    if right == 1 or left == 0:
        return left
    return Times(left, right)


def plus(left: Size, right: Size) -> Size:
    """The sum, with one number at its end at most."""
    (a, m), (b, n) = _parted(left), _parted(right)
    whole = a if b == 0 else b if a == 0 else Plus(a, b)
    if whole == 0:
        return m + n
    return whole if m + n == 0 else Plus(whole, m + n)


def _parted(size: Size) -> tuple[Size, int]:
    """A sum as what varies and a number."""
    match size:
        case int():
            return 0, size
        case Plus(left=left, right=int(right)):
            return left, right
    return size, 0


def ceil(total: Size, by: Size) -> Size:
    if total == by:
        return 1
    if isinstance(total, int) and isinstance(by, int):
        return -(-total // by)
    return total if by == 1 else Ceil(total, by)


def negated(size: Size) -> Size:
    return times(-1, size)


def holes_of(size: Size) -> frozenset[str]:
    """The names of the holes that a size depends on."""
    match size:
        case int():
            return frozenset()
        case Hole(name=name):
            return frozenset({name})
        case (
            Times(left=a, right=b)
            | Plus(left=a, right=b)
            | Ceil(total=a, by=b)
            | Stride(total=a, by=b)
        ):
            return holes_of(a) | holes_of(b)


def value(size: Size, columns: Mapping[str, Array]) -> Array:
    """The size in every row of a population."""
    match size:
        case int():
            return np.asarray(size, np.int64)
        case Hole(name=name):
            return np.asarray(columns[name], np.int64)
        case Times(left=left, right=right):
            return value(left, columns) * value(right, columns)
        case Plus(left=left, right=right):
            return value(left, columns) + value(right, columns)
        case Ceil(total=total, by=by):
            divisor: Array = np.maximum(value(by, columns), 1)
            return -(-value(total, columns) // divisor)
        case Stride(total=total, by=by):
            whole, step = value(total, columns), value(by, columns)
            return np.where(whole > step, np.minimum(step, whole - step), step)
    raise AssertionError(type(size))
