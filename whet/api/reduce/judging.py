"""The questions answered, in a process that may crash or hang at any of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

import numpy as np

from whet.api.compare import compare
from whet.api.compiler import compile
from whet.api.engines import target_name
from whet.api.reduce.findings import Finding, Question
from whet.api.reference import reference_results
from whet.build.backend import backend_of, find_target
from whet.build.tasks import graph_steps
from whet.core.caching import FileCache
from whet.core.config import process_config
from whet.core.errors import WhetError
from whet.core.types import Array
from whet.frontend.onnx import import_model
from whet.graph.graph import Graph
from whet.graph.passes import optimize
from whet.graph.rewrite import is_steady
from whet.measure.results import Candidate
from whet.ops.base import NUMERICS, Numeric
from whet.schedule.default import default_choice
from whet.tasks.price import no_evidence
from whet.tasks.steps import Step

Beat = Callable[[], None]
"""Says that the process is alive."""


def judge(model: Any, inputs: Mapping[str, Any], question: Question, beat: Beat) -> Finding:
    """The finding about a model, a path or bytes, with these values for its inputs."""
    try:
        graph = import_model(model, inputs).graph
    except WhetError as error:
        return Finding("unfit", f"it cannot be imported: {_described(error)}")
    beat()
    if question.factor is not None:
        return _worst_price(graph, question, question.factor, beat)
    return _failure(model, graph, inputs, question, beat)


# ------------------------------------------------------------------------------------- failures
def _failure(
    model: Any, graph: Graph, inputs: Mapping[str, Any], question: Question, beat: Beat
) -> Finding:
    """Whether compiling or calling the model fails, or its results are wrong."""
    names, values = list(inputs), list(inputs.values())
    try:
        wanted = reference_results(model, names, values)
    except WhetError as error:
        return Finding("unfit", f"the reference fails: {_described(error)}")
    beat()
    try:
        compiled = compile(
            model, inputs, question.threads, target=question.target, numerics=question.numerics,
            note=lambda message: None,
        )  # fmt: skip
        beat()
        results = compiled.results(*values)
    except Exception as error:  # whatever it is, it is the failure
        code = error.code if isinstance(error, WhetError) else ""
        return Finding("error", _described(error), f"{type(error).__name__} {code}".strip())
    if not all(is_steady(node.op) for node in graph.nodes):
        return Finding("fine", "")  # random numbers cannot be compared
    pairs = zip(results.items(), wanted, strict=True)
    arrays = [(name, got, want) for (name, got), want in pairs if isinstance(got, np.ndarray)]
    wrong = [
        d for name, got, want in arrays
        if not (d := compare(name, got, np.asarray(want), question.tolerance)).within
    ]  # fmt: skip
    if not wrong:
        return Finding("fine", "")
    worst = max(wrong, key=lambda d: d.of_range)
    how = worst.problem or f"off by {worst.of_range:.3g} of the range"
    return Finding("wrong", f"output '{worst.name}' is {how}")


def _described(error: Exception) -> str:
    """The error in one line."""
    text = str(error).partition("\n")[0]
    return text if isinstance(error, WhetError) else f"{type(error).__name__}: {text}"


# --------------------------------------------------------------------------------------- prices
_MEASURED: dict[tuple[str, int], float] = {}
"""Seconds of default kernels by key and threads: parts of a model have kernels of the whole."""


def _worst_price(graph: Graph, question: Question, factor: float, beat: Beat) -> Finding:
    """The kernel whose price is off by the most seconds, of those off by more than the factor."""
    numerics: Numeric = "exact" if question.numerics == "exact" else "real"
    graph = optimize(graph, numerics=NUMERICS[question.numerics])
    target = find_target(target_name(question.target), FileCache(process_config().cache))
    backend, threads = backend_of(target), question.threads
    price = backend.price(target, threads, numerics, no_evidence, graph.constant_bytes)
    steps = {s.key: s for s, _ in graph_steps(graph, target, threads, numerics)[0]}
    worst = Finding("fine", "")
    with closing(backend.runner()) as runner:

        def seconds(step: Step) -> float:
            key = (step.key, threads)
            if key not in _MEASURED:
                choice = default_choice(step.task, target, threads, numerics)
                candidate = Candidate(choice.sketch.name, choice.holes)
                (trial,) = runner.trials(step.task, [candidate], threads, target)
                _MEASURED[key] = trial.seconds
            return _MEASURED[key]

        for step in steps.values():
            beat()
            estimate, measured = price(step.task), seconds(step)
            if estimate is None or not np.isfinite(measured):
                continue
            expected, off = estimate.seconds, abs(measured - estimate.seconds)
            ratio = max(measured / expected, expected / measured)
            if ratio > factor and off > worst.seconds:
                text = (f"{step.name} takes {measured * 1e6:.3g} us, {expected * 1e6:.3g} us were "
                        f"expected: {ratio:.2f} times off")  # fmt: skip
                worst = Finding("mispriced", text, seconds=off)
    return worst


def judged(message: dict[str, Any], arrays: list[Array], beat: Beat) -> Finding:
    """The answer to a message: a question, names of inputs, and the model as path or bytes."""
    question = Question.from_json(message["question"])
    model = message["path"] or arrays.pop(0).tobytes()
    return judge(model, dict(zip(message["names"], arrays, strict=True)), question, beat)
