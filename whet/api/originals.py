"""The graph behind a program: made again when asked for, so that its weights are not held.

Native code has packed copies of its own of all weights; the originals are wanted only to store
or to show a model.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np

from whet.core.digest import digest_text
from whet.core.types import Array
from whet.graph.body import describe_content
from whet.graph.graph import Graph

GetGraph = Callable[[], Graph]

LARGE_BYTES = 16 << 20
"""Weights of this size are not left to wait until Python next looks for unused cycles."""


def held(graph: Graph) -> GetGraph:
    """The graph itself: for programs that need it to run, or that cannot make it again."""
    return lambda: graph


def made_again(graph: Graph, make: GetGraph, changed: Callable[[], NoReturn]) -> GetGraph:
    """The graph while somebody holds it, then by `make`; if that gives another one than this,
    `changed` says so."""
    digest, latest = _digest(graph), weakref.ref(graph)

    def get() -> Graph:
        nonlocal latest
        again = latest()
        if again is None:
            again = make()
            if _digest(again) != digest:
                changed()
            latest = weakref.ref(again)
        return again

    return get


def _digest(graph: Graph) -> str:
    return digest_text(*describe_content(graph))


def is_large(graph: Graph) -> bool:
    return sum(c.array.nbytes for c in graph.constants) >= LARGE_BYTES


def collect_released() -> None:
    """Frees graphs that nobody holds: nodes and their results refer to each other."""
    gc.collect()


def lasting_inputs(inputs: Mapping[str, Any], guards: Mapping[str, Array]) -> dict[str, Any]:
    """The inputs of a compilation in a form to keep: later changes of the caller's arrays do
    not matter, and arrays whose values do not count take no memory."""

    def lasting(name: str, value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return value
        if name in guards:
            return guards[name].copy()
        return np.broadcast_to(np.zeros((), value.dtype), value.shape)

    return {name: lasting(name, value) for name, value in inputs.items()}
