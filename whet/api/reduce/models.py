"""Reducing a model file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from whet.api.programs import Note
from whet.api.reduce.cutting import Case, Cutter
from whet.api.reduce.findings import Finding, Question
from whet.api.reduce.judge import DEFAULT_TIMEOUT, Judge
from whet.api.reduce.search import smallest_case
from whet.api.samples import sample_values
from whet.api.specs import graph_signature, imported_signature
from whet.core.errors import UsageError, fail
from whet.core.module_executor import OutsideModule
from whet.core.types import Array
from whet.frontend.onnx import import_model


@dataclass(frozen=True)
class Reduced:
    """The result of reducing a model."""

    case: Case
    before: Finding
    after: Finding
    nodes_before: int
    trials: int
    values_matter: bool = True
    """Whether random inputs do not show the problem, as far as is known."""


def reduce_model(
    path: str,
    question: Question,
    inputs: Mapping[str, Any] | None = None,
    values: Mapping[str, Any] | None = None,
    *,
    modules: Sequence[str] = (),
    timeout: float = DEFAULT_TIMEOUT,
    seed: int = 0,
    note: Note | None = None,
    watch: Callable[[Reduced], None] | None = None,
) -> Reduced:
    """The smallest part of a model that shows the problem that the question asks for.

    `inputs` are shapes or values by which the model is imported, and `values` those that are given;
    others are random.  `modules` (names or files) are loaded wherever the model is tried.  `note`
    receives messages, and `watch` every part that is smaller than those before.

    Raises: `WH3008` if the model does not show the problem, or only before it is cut.
    """
    for source in modules:
        OutsideModule(source).load()
    imported = import_model(path, inputs, note=note)
    given = sample_values(imported_signature(imported), values or {}, seed)
    flat = imported.flatten(given)
    named = dict(zip((port.name for port in imported.arguments), given, strict=True))
    graph, arrays = imported.graph, imported.graph_inputs(flat)
    whole = Case(graph, {v.name: a for v, a in zip(graph.inputs, arrays, strict=True)})
    with Judge(question, modules, timeout) as judge:
        # A sequence is no array that could be sent along; the graph has one for each of its items.
        plain = all(isinstance(v, np.ndarray) for v in named.values())
        first = judge.of_case(whole)
        before = judge.of_file(path, named) if plain else first
        if not before.is_problem:
            _nothing_to_do(path, question, before)
        if not first.is_like(before):
            fail("WH3008", f"'{path}' shows it, but not the part of it that can be cut ({first})",
                 str(before), hint="the front end may be at fault, or a part whose shapes depend "
                 "on data", kind=UsageError)  # fmt: skip
        cutter = Cutter(graph, arrays)
        best = Reduced(whole, before, first, len(graph.nodes), 0)
        latest = first

        def shows(case: Case) -> bool:
            nonlocal latest
            latest = judge.of_case(case)
            return latest.is_like(before)

        def found(case: Case) -> None:
            nonlocal best
            best = replace(best, case=case, after=latest, trials=judge.trials)
            if watch is not None:
                watch(best)

        smallest_case(cutter, shows, found, extents=question.factor is None)
        random = judge.of_case(_with_random_values(best.case, seed))
        return replace(best, trials=judge.trials, values_matter=not random.is_like(before))


def _with_random_values(case: Case, seed: int) -> Case:
    """The case with inputs such as every command makes them."""
    drawn = sample_values(graph_signature(case.graph), {}, seed)
    arrays: dict[str, Array] = dict(zip((v.name for v in case.graph.inputs), drawn, strict=True))
    return Case(case.graph, arrays)


def _nothing_to_do(path: str, question: Question, finding: Finding) -> None:
    if finding.kind == "unfit":
        fail("WH3008", f"'{path}' cannot be tried: {finding.text}", kind=UsageError)
    if question.factor is None:
        fail("WH3008", f"'{path}' compiles, runs, and gives what the reference gives",
             f"tolerance {question.tolerance}", hint="other values of inputs may show a problem: "
             "--seed, --input", kind=UsageError)  # fmt: skip
    fail("WH3008", f"no kernel of '{path}' is off its price by more than {question.factor:g} times",
         kind=UsageError)  # fmt: skip
