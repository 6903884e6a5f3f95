"""Failures made small: nodes, outputs, shapes, attributes and numbers are taken away as long as
the failure stays."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tools.graph_fuzz.campaign import run_alone
from tools.graph_fuzz.case import Case
from tools.graph_fuzz.surgery import (
    arrays_of,
    copied,
    intermediate_values,
    with_arrays,
    with_outputs,
    with_replaced_reads,
    with_value,
    without_attribute,
    without_last_input,
)
from tools.graph_fuzz.trial import Outcome
from whet.core.types import Array, type_of

Fails = Callable[[Case], bool]
Step = Callable[[Case], Iterator[Case]]
"""Gives smaller candidates of a case, the boldest first."""


@dataclass
class Budget:
    """How long to go on."""

    trials: int = 400
    seconds: float = 120.0
    start: float = field(default_factory=time.monotonic)

    def spent(self) -> bool:
        return self.trials <= 0 or time.monotonic() - self.start > self.seconds


def same_failure(a: Outcome, b: Outcome) -> bool:
    """Whether two outcomes are one failure, as far as can be told."""
    memory = ("crash", "outside")
    if a.kind in memory:
        return b.kind in memory
    if a.kind == "error":
        return b.kind == "error" and _place(a.detail) == _place(b.detail)
    return a.kind == b.kind


def _place(detail: str) -> tuple[str, str]:
    """The kind of an exception and where it was raised."""
    return detail.split(":")[0], detail.rsplit("(", 1)[-1]


def shrink(case: Case, outcome: Outcome, budget: Budget, timeout: float = 30.0) -> Case:
    """The smallest case found that fails in the same way."""
    peer = outcome.kind == "peer"

    def fails(candidate: Case) -> bool:
        budget.trials -= 1
        found = dict(run_alone([candidate], timeout=timeout, peer=peer))
        return same_failure(outcome, found[0])

    before: Case | None = None
    while case is not before and not budget.spent():
        before = case
        for step in STEPS:
            case = _exhausted(case, step, fails, budget)
    return case


def _exhausted(case: Case, step: Step, fails: Fails, budget: Budget) -> Case:
    """The case after all that the step can take away."""
    progress = True
    while progress and not budget.spent():
        progress = False
        for candidate in step(case):
            if budget.spent():
                break
            if _measure(candidate) < _measure(case) and fails(candidate):
                case, progress = candidate, True
                break
    return case


def _measure(case: Case) -> tuple[Any, ...]:
    """What is to become smaller: nodes, then outputs and inputs, the variant, elements, and
    the number of digits that values have."""
    arrays = arrays_of(case).values()
    attributes = sum(len(n.attribute) for n in case.model.graph.node)
    operands = sum(len(n.input) for n in case.model.graph.node)
    v = case.variant
    plain = (v.way != "plain") + v.checked + (v.target != "cpu")
    return (
        case.size, len(case.model.graph.output), operands, plain + v.threads,
        sum(a.size for a in arrays), attributes, sum(_digits(a) for a in arrays),
    )  # fmt: skip


def _digits(array: Array) -> float:
    if not array.size:
        return 0.0
    wide = array.astype(np.float64)
    odd = ~np.isfinite(wide)
    wide = np.where(odd, 0.0, wide)
    return float((np.abs(wide) > 0).sum() + 2 * (wide != np.rint(wide)).sum() + 3 * odd.sum()
                 + np.log2(1 + np.abs(wide)).sum())  # fmt: skip


# --------------------------------------------------------------------------------------- steps
def _simpler_variants(case: Case) -> Iterator[Case]:
    v = case.variant
    for changed in (
        replace(v, way="plain", threads=1, checked=False, target="cpu"),
        replace(v, way="plain"), replace(v, threads=1), replace(v, threads=2),
        replace(v, checked=False), replace(v, target="cpu"),
    ):  # fmt: skip
        if changed != v:
            yield replace(case, variant=changed)


def _fewer_outputs(case: Case) -> Iterator[Case]:
    names = [o.name for o in case.model.graph.output]
    if len(names) > 1:
        for name in names:
            yield with_outputs(case, [name])
        for name in names:
            yield with_outputs(case, [n for n in names if n != name])


def _fewer_nodes(case: Case) -> Iterator[Case]:
    """Ends earlier, starts later, or leaves out what lies between."""
    values = intermediate_values(case)
    names = [n for n in values if n not in {o.name for o in case.model.graph.output}]
    for name in names:
        yield with_outputs(case, [name])
    for name in reversed(names):
        yield with_value(case, name, values[name])
    for name in reversed(names):
        yield with_value(case, name, values[name], constant=True)
    known = {**arrays_of(case), **values}
    for node in case.model.graph.node:
        for output in node.output:
            for read in node.input:
                if output in values and read in known and _alike(known[read], values[output]):
                    yield with_replaced_reads(case, output, read)


def _alike(a: Array, b: Array) -> bool:
    return type_of(a) == type_of(b)


def _fewer_operands(case: Case) -> Iterator[Case]:
    for n, node in enumerate(case.model.graph.node):
        if len(node.input) > 1:
            yield without_last_input(case, n)


def _smaller_shapes(case: Case) -> Iterator[Case]:
    """One extent at a time, everywhere where it occurs, then in single tensors."""
    arrays = arrays_of(case)
    extents = sorted({d for a in arrays.values() for d in a.shape if d > 1}, reverse=True)
    for old in extents:
        for new in dict.fromkeys((1, 2, 3, old // 2, old - 1)):
            if 0 < new < old:
                yield _with_extent(case, arrays, old, new)
    for name, array in arrays.items():
        for axis, old in enumerate(array.shape):
            for new in dict.fromkeys((1, old // 2, old - 1)):
                if 0 < new < old:
                    yield with_arrays(case, {name: np.take(array, range(new), axis)})


def _with_extent(case: Case, arrays: dict[str, Array], old: int, new: int) -> Case:
    """All axes of one extent shortened, and the number replaced where integers name it."""
    changed: dict[str, Array] = {}
    for name, array in arrays.items():
        made = array
        for axis, extent in enumerate(array.shape):
            if extent == old:
                made = np.take(made, range(new), axis)
        if array.dtype == np.int64 and array.ndim <= 1 and array.size <= 8:
            made = np.where(made == old, new, made)
        if made is not array:
            changed[name] = made
    cut = with_arrays(case, changed)
    for node in cut.model.graph.node:
        for a in node.attribute:
            if len(a.ints):
                a.ints[:] = [new if i == old else i for i in a.ints]
    return cut


def _fewer_attributes(case: Case) -> Iterator[Case]:
    for n, node in enumerate(case.model.graph.node):
        for k, attribute in enumerate(node.attribute):
            yield without_attribute(case, n, k)
            if len(attribute.ints):
                for value in (0, 1):
                    made = copied(case.model)
                    ints = made.graph.node[n].attribute[k].ints
                    ints[:] = [min(i, value) if i > 0 else i for i in ints]
                    yield replace(case, model=made)


def _simpler_values(case: Case) -> Iterator[Case]:
    for name, array in arrays_of(case).items():
        for simple in _simplifications(array):
            yield with_arrays(case, {name: simple})


def _simplifications(array: Array) -> Iterator[Array]:
    if array.dtype == np.int64 and array.ndim <= 1 and array.size <= 8:
        return  # likely a shape
    count = np.arange(array.size).reshape(array.shape)
    yield np.zeros_like(array)
    yield np.ones_like(array)
    if array.dtype != np.bool_:
        yield (count % 7).astype(np.float32).astype(array.dtype)
    if type_of(array).dtype.is_float:
        wide = array.astype(np.float64)
        clean = np.where(np.isfinite(wide), wide, 1.0)
        yield np.rint(clean).astype(array.dtype)
        yield (np.rint(clean * 8) / 8).astype(array.dtype)
        yield clean.astype(array.dtype)
    flat = np.ravel(array)
    if array.size <= 16:
        for n in range(array.size):
            made = flat.copy()
            made[n] = 0
            yield made.reshape(array.shape)


STEPS: tuple[Step, ...] = (
    _simpler_variants, _fewer_outputs, _fewer_nodes, _fewer_operands, _smaller_shapes,
    _fewer_attributes, _simpler_values,
)  # fmt: skip
