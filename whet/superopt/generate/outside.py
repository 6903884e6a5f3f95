"""Operators from outside the package in the generator's alphabet."""

from __future__ import annotations

from collections.abc import Iterator

from whet.core.errors import UsageError, check
from whet.core.module_executor import OutsideModule
from whet.ops.base import REGISTRY
from whet.superopt.generate.alphabet import Letter, letter_of


def outside_letters(module: OutsideModule) -> tuple[Letter, ...]:
    """A letter for every operator that the module defines."""
    letters = tuple(_letters(module.load().__name__))
    check(bool(letters), "WH3007", f"'{module.source}' defines no operators", kind=UsageError)
    return letters


def _letters(module: str) -> Iterator[Letter]:
    for _, operator in sorted(REGISTRY.items()):
        if operator.__module__ == module:
            yield letter_of(operator)
