"""whet explain: which rewrites make a model cheaper, why they hold, and what they bring."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.api.arguments import thread_count
from whet.api.budget import parse_budget
from whet.api.engines import default_engine
from whet.api.samples import sample_values
from whet.api.specs import graph_signature
from whet.cli.arguments import (
    InputOption,
    JsonOption,
    ModelArgument,
    NumericsOption,
    QuietOption,
    TargetOption,
    ThreadsOption,
    parse_inputs,
)
from whet.cli.console import Reporter, finite
from whet.cli.models import require_runnable
from whet.cli.peers.turns import ROUNDS, Ratio, ratio, summarize_turns
from whet.cli.searching import open_graph, searched_target
from whet.core.config import process_config
from whet.core.errors import UsageError, check
from whet.graph.graph import Graph
from whet.ops.base import Numeric
from whet.runtime.executable import Executable
from whet.runtime.files import atomic_write

if TYPE_CHECKING:
    from whet.joint.explain import Explained
    from whet.joint.kept import Rewritten

SHOWN_NODES = 6
"""Names of replaced nodes that are printed."""
CALLS = 3
"""Calls of a graph in one turn."""


def explain_command(
    model: ModelArgument,
    measure: Annotated[
        bool,
        typer.Option("--measure", help="Also compile the graphs and measure what steps bring."),
    ] = False,
    svg: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw where the model differs after --step."),
    ] = None,
    step: Annotated[int, typer.Option(metavar="N", min=1, help="The step that --svg draws.")] = 1,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Time of a search anew; by default what compiling has found."
        ),
    ] = None,
    input: InputOption = None,
    threads: ThreadsOption = None,
    numerics: NumericsOption = None,
    target: TargetOption = None,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Show how a model's graph is rewritten when it is compiled.

    Every step names the rules, their proofs, the nodes of the model that were replaced, what the
    step is expected to bring, and how far the results are apart in double precision.
    """
    reporter = Reporter(quiet=quiet, as_json=json)
    seconds = process_config().rewrite_seconds if budget is None else parse_budget(budget)
    check(seconds > 0, "WH3007", "there is no time to search for rewrites",
          hint="--budget 10s, or the setting rewrite_seconds", kind=UsageError)  # fmt: skip
    if measure:
        require_runnable(target, reporter)
    opened = open_graph(model, parse_inputs(input), numerics, reporter)
    if opened.imported.tail is not None:
        reporter.note("shapes depend on data: this is about the part of the model in front of that")
    found, cache = searched_target(target, reporter)
    from whet.joint.explain import explained
    from whet.joint.kept import cheaper_graph, search

    count = thread_count(threads)
    with reporter.working("searching"):
        where = (opened.graph, found, count, opened.numerics)
        if budget is None:
            outcome = cheaper_graph(*where, cache, seconds)[1]
        else:
            outcome = search(*where, seconds)
        steps = list(explained(opened.graph, outcome))
    measured: list[Ratio] = []
    if measure and steps:
        graphs = [opened.graph, *(s.graphs[1] for s in steps)]
        measured = measure_steps(graphs, count, opened.numerics, target, reporter)
    if svg is not None and not steps:
        reporter.note(f"there is nothing to draw: {svg} was not written")
    elif svg is not None:
        check(step <= len(steps), "WH3007", f"there is no step {step} to draw",
              hint=f"the search has taken {len(steps)} steps", kind=UsageError)  # fmt: skip
        with atomic_write(svg) as file:
            file.write(drawn(steps[step - 1]).encode())
        reporter.note(f"wrote {svg}")
    document = {
        "model": model,
        "threads": count,
        "target": found.name,
        "before_seconds": outcome.before,
        "after_seconds": outcome.after,
        "graphs": outcome.states,
        "steps": [_document(s, measured[n] if measured else None) for n, s in enumerate(steps)],
    }
    reporter.result(document, lambda: _show(reporter, model, outcome, steps, measured))


def drawn(step: Explained) -> str:
    """The first place of a step as SVG."""
    from whet.joint.region_svg import draw

    before, after = step.graphs
    return draw(step.difference.components()[0], before.names, after.names)


def measure_steps(
    graphs: Sequence[Graph],
    threads: int,
    numerics: Numeric,
    target: str | None,
    reporter: Reporter,
) -> list[Ratio]:
    """The time before each step by the time after it, from calls in turns."""
    engine = default_engine(reporter.note, target)
    with reporter.steps("compiling", len(graphs)) as done:
        made = []
        for graph in graphs:
            made.append(engine.prepare(graph, threads, numerics, note=reporter.note))
            done()
    values = sample_values(graph_signature(graphs[0]), {})
    turns: list[list[list[float]]] = [[] for _ in made]
    with reporter.steps("measuring", ROUNDS) as done:
        for n in range(ROUNDS):
            shift = n % len(made)
            for i in [*range(shift, len(made)), *range(shift)]:
                made[i](values)
                turns[i].append([_seconds(made[i], values) for _ in range(CALLS)])
            done()
    timings = [summarize_turns(t) for t in turns]
    return [ratio(a, b) for a, b in itertools.pairwise(timings)]


def _seconds(run: Executable, values: Sequence[Any]) -> float:
    start = time.perf_counter()
    run(values)
    return time.perf_counter() - start


# ------------------------------------------------------------------------------------- the report
def _document(s: Explained, measured: Ratio | None) -> dict[str, Any]:
    return {
        "rules": [
            {
                "rule": use.rule,
                "count": use.count,
                "kind": use.source,
                "statement": use.statement,
                "proof": list(use.proof),
                "numeric": use.numeric,
            }
            for use in s.uses
        ],
        "nodes": list(s.nodes),
        "places": s.places,
        "before_seconds": s.before,
        "after_seconds": s.after,
        "measured_gain": measured and measured.value,
        "measured_interval": measured and [measured.low, measured.high],
        "numeric": s.numeric,
        "error": finite(s.error),
        "nodes_before": len(s.difference.before),
        "nodes_after": len(s.difference.after),
    }


def _show(
    reporter: Reporter,
    model: str,
    outcome: Rewritten,
    steps: Sequence[Explained],
    measured: Sequence[Ratio],
) -> None:
    if not steps:
        reporter.text(f"{model}: stays as it is, {outcome.states} graphs were priced")
        return
    reporter.text(
        f"{model}: {_gain(outcome.before, outcome.after)} predicted, {outcome.states} graphs priced"
    )
    for n, s in enumerate(steps):
        places = "one place" if s.places == 1 else f"{s.places} places"
        reporter.text(f"\nstep {n + 1}: {_gain(s.before, s.after)} predicted, {places}")
        if measured:
            m = measured[n]
            reporter.text(f"  measured   {m.value:.2f}x (95 %: {m.low:.2f} to {m.high:.2f})")
        for use in s.uses:
            times = "once" if use.count == 1 else f"{use.count} times"
            reporter.text(f"  rule       {use.rule}, {times}, {use.numeric}")
            reporter.text(f"               {use.statement}")
            reporter.text("    proof    " + "\n             ".join(use.proof))
        more = f" and {len(s.nodes) - SHOWN_NODES} more" if len(s.nodes) > SHOWN_NODES else ""
        shown = ", ".join(s.nodes[:SHOWN_NODES]) or "nodes without names"
        sizes = f"{len(s.difference.before)} nodes became {len(s.difference.after)}"
        reporter.text(f"  place      {shown}{more}; {sizes}")
        reporter.text(f"  error      {s.error:.1e} of the largest element, in double precision")


def _gain(before: float, after: float) -> str:
    return f"{before * 1e3:.3f} ms -> {after * 1e3:.3f} ms ({before / after:.2f}x)"
