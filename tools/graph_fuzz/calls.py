"""Calling a compiled model in all the ways in which users do, on memory that notices."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tools.graph_fuzz.memory import Fences, differently_laid_out
from whet.core.types import Array, TensorType

Results = tuple[Array, ...]
PYTHON_THREADS = 3


class OutsideError(Exception):
    """Somebody wrote where nobody may."""


class SharedError(Exception):
    """A result lies in memory that is not its own."""


def results_of(compiled: Any, arrays: Sequence[Array], out: Any = None) -> Results:
    """The results of a call as a tuple."""
    found = compiled(*arrays, out=out)
    return found if isinstance(found, tuple) else (found,)


def all_calls(
    compiled: Any, arrays: Sequence[Array], layout: str, *, pages: bool,
    stage: Callable[[str], None],
) -> Iterator[tuple[str, Results]]:  # fmt: skip
    """Calls one after the other, each with what it is and what it gave."""
    stage("call: plain")
    first = results_of(compiled, arrays)
    _check_own(first, arrays)
    yield "plain", first
    for at_end in (True, False):
        stage(f"call: fenced at the {'end' if at_end else 'start'}")
        yield from _fenced(compiled, arrays, pages=pages, at_end=at_end)
    stage(f"call: {layout} inputs")
    yield layout, results_of(compiled, [differently_laid_out(a, layout) for a in arrays])
    stage("call: several threads")
    yield from _at_once(compiled, arrays)


def _check_own(results: Results, arrays: Sequence[Array]) -> None:
    for n, result in enumerate(results):
        if not (result.flags.writeable and result.flags.c_contiguous):
            raise SharedError(f"output {n} is read-only or not contiguous")
        for other in (*arrays, *results[:n]):
            if np.may_share_memory(result, other):
                raise SharedError(f"output {n} shares memory with an input or another output")


def _fenced(
    compiled: Any, arrays: Sequence[Array], *, pages: bool, at_end: bool
) -> Iterator[tuple[str, Results]]:
    fences = Fences(pages=pages, at_end=at_end)
    given = [fences.copy(a) for a in arrays]
    where = "end" if at_end else "start"
    specs = compiled.outputs
    if not specs or any(d is None for s in specs for d in s.shape):
        yield f"fenced inputs, {where}", results_of(compiled, given)
    else:
        out = [fences.empty(TensorType(s.shape, s.dtype)) for s in specs]
        results = results_of(compiled, given, out)
        if any(r is not o for r, o in zip(results, out)):
            raise SharedError("a result is not the array that was given for it")
        yield f"fenced, {where}", results
    if fences.damage():
        raise OutsideError(f"bytes outside of an array have changed (arrays at the {where})")


def _at_once(compiled: Any, arrays: Sequence[Array]) -> Iterator[tuple[str, Results]]:
    found: list[Results] = []
    errors: list[BaseException] = []

    def call() -> None:
        try:
            found.append(results_of(compiled, arrays))
            found.append(results_of(compiled, arrays))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=call) for _ in range(PYTHON_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    for results in found:
        yield "several threads", results
