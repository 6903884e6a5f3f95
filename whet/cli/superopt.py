"""whet superopt: a model rewritten for other runtimes, as ONNX."""

from __future__ import annotations

import contextlib
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from whet.api.arguments import thread_count
from whet.api.budget import parse_budget
from whet.api.samples import sample_values
from whet.api.specs import imported_signature
from whet.cli.arguments import (
    InputOption,
    JsonOption,
    ModelArgument,
    NumericsOption,
    QuietOption,
    SeedOption,
    ThreadsOption,
    given_values,
    parse_inputs,
)
from whet.cli.bench import WARN_ABOVE, largest_error
from whet.cli.console import Reporter
from whet.cli.interrupts import heard
from whet.cli.peers.process import Worker
from whet.cli.peers.turns import ROUNDS, Ratio, ratio, take_turns
from whet.cli.searching import Opened, open_graph, searched_target
from whet.core.errors import UnsupportedError, UsageError, check
from whet.core.types import Array, TensorType
from whet.graph.graph import Graph
from whet.ops.base import Numeric
from whet.runtime.files import atomic_write

WHET, ONNXRUNTIME = "whet", "onnxruntime"
LARGEST = 2**31 - 2**20
"""Bytes of weights that an ONNX file can hold."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """The result of a search: the graph, the rules of every step, and how much faster it is."""

    graph: Graph | None
    """None where nothing better was found."""
    steps: tuple[Mapping[str, int], ...]
    states: int
    predicted: float | None = None
    interrupted: bool = False


def superopt_command(
    model: ModelArgument,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="ONNX model to write.")
    ],
    cost: Annotated[
        str,
        typer.Option(
            metavar=f"{WHET}|{ONNXRUNTIME}",
            help="Who says what graphs cost: whet's model of the machine, or measured times of "
            "ONNX Runtime.",
        ),
    ] = ONNXRUNTIME,
    budget: Annotated[
        str, typer.Option(metavar="TIME", help="Time to search: 30s, 10m, 1h.")
    ] = "60s",
    seconds: Annotated[
        float, typer.Option(metavar="S", min=0.01, help="Seconds to time each model at the end.")
    ] = 5.0,
    input: InputOption = None,
    threads: ThreadsOption = None,
    numerics: NumericsOption = None,
    seed: SeedOption = 0,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Rewrite a model and store it as ONNX, for other runtimes.

    The names of inputs and outputs stay; open dimensions are fixed as given by --input.  With
    --cost onnxruntime the result is kept only if ONNX Runtime runs it faster, by runs in turns and
    a 95 % confidence interval; otherwise the model is written as it was.  Ctrl-C ends that search
    and keeps the best so far.
    """
    reporter = Reporter(quiet=quiet, as_json=json)
    check(cost in (WHET, ONNXRUNTIME), "WH3007", f"no cost is named '{cost}'",
          hint=f"{WHET} or {ONNXRUNTIME}", kind=UsageError)  # fmt: skip
    limit, count, given = parse_budget(budget), thread_count(threads), parse_inputs(input)
    check(limit > 0, "WH3007", "there is no time to search", hint="--budget 60s",
          kind=UsageError)  # fmt: skip
    if cost == ONNXRUNTIME:
        require_onnxruntime()
    opened = open_graph(model, given, numerics, reporter)
    require_plain(opened)
    search = by_onnxruntime if cost == ONNXRUNTIME else by_whet
    found = search(opened, count, limit, reporter)
    if found.interrupted:
        reporter.note(f"interrupted, {len(found.steps)} steps kept")
    data, opset = exported(found.graph) if found.graph is not None else (None, None)
    measured: Ratio | None = None
    if data is not None and cost == ONNXRUNTIME:
        inputs = model_inputs(opened, given_values(given), seed)
        measured = compare_models(model, data, inputs, count, seconds, reporter)
        if measured is None or measured.low <= 1:
            data = None
    changed = data is not None
    with atomic_write(output) as file:
        file.write(original_bytes(model) if data is None else data)
    report(reporter, output, cost, opset if changed else None, found, measured)


def require_onnxruntime() -> None:
    """`WH3005` if ONNX Runtime is not installed."""
    from whet.measure.onnxruntime_session import peer_module

    peer_module(ONNXRUNTIME)


def require_plain(opened: Opened) -> None:
    """`WH2002` for models that are more than one graph from tensors to tensors."""
    imported = opened.imported
    ports = (*imported.arguments, *imported.results)
    odd = [p.name for p in ports if not isinstance(p.structure, int)]
    values = (v for node in opened.graph.nodes for v in node.results)
    problems = [
        *(f"'{name}' is a sequence or may be missing" for name in odd),
        *(f"shapes depend on the value of input '{name}'" for name in imported.guards),
    ]
    if imported.tail is not None or any(not isinstance(v.type, TensorType) for v in values):
        problems.append("shapes depend on data")
    weights = opened.graph.constant_bytes
    if weights > LARGEST:
        problems.append(f"weights take {weights:,} bytes, more than one ONNX file can hold")
    check(not problems, "WH2002", "the model cannot be written as one ONNX graph", *problems,
          kind=UnsupportedError)  # fmt: skip


# -------------------------------------------------------------------------------------- searches
def by_whet(opened: Opened, threads: int, seconds: float, reporter: Reporter) -> Outcome:
    """The graph that whet expects to run fastest."""
    from whet.joint.kept import rewritten_graph, search

    target, _ = searched_target(None, reporter)
    with reporter.working("searching"):
        found = search(opened.graph, target, threads, opened.numerics, seconds)
    if found.recipe is None:
        return Outcome(None, (), found.states)
    steps = tuple(taken.rules for taken in found.taken)
    graph = rewritten_graph(opened.graph, found)
    return Outcome(graph, steps, found.states, found.before / found.after)


def by_onnxruntime(opened: Opened, threads: int, seconds: float, reporter: Reporter) -> Outcome:
    """The graph that ONNX Runtime was fastest with."""
    from whet.joint.kept import shared_matcher
    from whet.joint.peer_times import PeerTimes
    from whet.joint.timed_search import TimedSearch

    target, cache = searched_target(None, reporter)
    times = PeerTimes(threads, target.key, cache)
    kind: Numeric = "real" if opened.numerics == "real" else "exact"
    interrupted = True
    with reporter.stages() as begin:
        search = TimedSearch(
            opened.graph,
            times,
            lambda: shared_matcher(kind),
            seconds,
            in_seconds(begin("searching, seconds"), seconds),
        )
        # A search that is stopped is a shorter search.
        with contextlib.suppress(KeyboardInterrupt):
            search.run()
            interrupted = False
    heard()
    steps = tuple(_counted(r.rule for r in step.rewrites) for step in search.taken)
    graph = search.graph if search.taken else None
    return Outcome(graph, steps, search.states, interrupted=interrupted)


def in_seconds(show: Callable[[int, int], None], total: float) -> Callable[[float], None]:
    """Shows passed seconds as steps."""
    return lambda passed: show(int(min(passed, total)), int(total))


def _counted(rules: Iterable[str]) -> dict[str, int]:
    return dict(Counter(rules))


# ----------------------------------------------------------------------------------------- files
def exported(graph: Graph) -> tuple[bytes, int]:
    """The graph as an ONNX file that the checker has seen, and its opset."""
    import onnx

    from whet.graph.export_portable import portable_model

    made: Any = portable_model(graph)
    onnx.checker.check_model(made)
    return bytes(made.SerializeToString()), int(made.opset_import[0].version)


def original_bytes(model: str) -> bytes:
    """The model as it was, in one file."""
    import onnx
    from onnx.external_data_helper import uses_external_data

    proto = onnx.load(model, load_external_data=False)
    if not any(uses_external_data(t) for t in proto.graph.initializer):
        return Path(model).read_bytes()
    whole: Any = onnx.load(model)
    return bytes(whole.SerializeToString())


def model_inputs(opened: Opened, given: Mapping[str, Any], seed: int) -> dict[str, Array]:
    """An array for every input of the model."""
    signature = imported_signature(opened.imported)
    values = sample_values(signature, given, seed)
    return {p.name: v for p, v in zip(signature.arguments, values, strict=True)}


def compare_models(
    model: str,
    better: bytes,
    inputs: Mapping[str, Array],
    threads: int,
    seconds: float,
    reporter: Reporter,
) -> Ratio | None:
    """The time of the model in ONNX Runtime by that of the rewritten one; None if their results
    differ, which other rounding may lead to where results are chosen by comparisons."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "better.onnx").write_bytes(better)
        paths = {"original": str(Path(model).absolute()), "better": str(folder / "better.onnx")}
        workers = {name: stack.enter_context(Worker(ONNXRUNTIME, threads)) for name in paths}
        for name, worker in workers.items():
            worker.load(paths[name], inputs)
        before, after = (workers[name].run() for name in paths)
        error = largest_error(after, before)
        if error > WARN_ABOVE:
            reporter.note(f"results of the rewritten model differ by {error:.2g} of their range")
            return None
        with reporter.steps("timing both models", ROUNDS * len(workers)) as step:
            timings = take_turns(workers, seconds, progress=step)
    return ratio(timings["original"], timings["better"])


# ---------------------------------------------------------------------------------------- report
def report(
    reporter: Reporter,
    output: Path,
    cost: str,
    opset: int | None,
    found: Outcome,
    measured: Ratio | None,
) -> None:
    """Tells what was written; without an opset that is the model as it was."""
    changed = opset is not None
    document = {
        "output": str(output),
        "cost": cost,
        "changed": changed,
        "opset": opset,
        "graphs": found.states,
        "steps": [dict(step) for step in found.steps] if changed else [],
        "predicted_gain": found.predicted,
        "measured_gain": measured and measured.value,
        "measured_interval": measured and [measured.low, measured.high],
        "interrupted": found.interrupted,
    }

    def show() -> None:
        for n, step in enumerate(found.steps if changed else ()):
            rules = ", ".join(f"{rule} x{count}" for rule, count in step.items())
            reporter.text(f"step {n + 1}: {rules}")
        gains = []
        if found.predicted is not None:
            gains.append(f"{found.predicted:.2f}x predicted")
        if measured is not None:
            gains.append(f"{measured.value:.2f}x measured in {ONNXRUNTIME} "
                         f"(95 %: {measured.low:.2f} to {measured.high:.2f})")  # fmt: skip
        told = f"; {', '.join(gains)}" if gains else ""
        if changed:
            reporter.text(f"{output}: rewritten, opset {opset}{told}")
        else:
            reporter.text(f"{output}: the model as it was, nothing faster was found{told}")

    reporter.result(document, show)
