"""Generators by operator: every operator of the front end has one."""

from __future__ import annotations

from collections.abc import Callable

import onnx

from tools.graph_fuzz.growth import Growth
from whet.frontend.onnx.functions import has_function
from whet.frontend.onnx.mapping import CONVERTERS

Key = tuple[str, str]
"""Domain and name of an operator."""
Generator = Callable[[Growth, str], object]
"""Adds a node of the named operator, and whatever it needs; `Impossible` if it cannot."""

GENERATORS: dict[Key, Generator] = {}
FAMILIES: dict[Key, str] = {}
"""The module that an operator's generator is in."""


def generates(*names: str, domain: str = "") -> Callable[[Generator], Generator]:
    """Decorator: registers a generator for these operators."""

    def register(generator: Generator) -> Generator:
        for name in names:
            assert (domain, name) not in GENERATORS, name
            GENERATORS[domain, name] = generator
            FAMILIES[domain, name] = generator.__module__.rsplit(".", 1)[-1]
        return generator

    return register


def front_end_operators() -> list[Key]:
    """Every operator that the front end reads: mapped, or by the function body that it has."""
    newest = {(s.domain, s.name): s for s in onnx.defs.get_all_schemas() if not s.deprecated}
    inlined = [key for key, s in newest.items()
               if key not in CONVERTERS and has_function(*key, s.since_version)]  # fmt: skip
    return sorted([*CONVERTERS, *inlined])
