"""whet compile: a model as an artifact."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

import whet
from whet.cli.arguments import (
    BudgetOption,
    InputOption,
    JsonOption,
    ModelArgument,
    NumericsOption,
    PrecisionOption,
    QuietOption,
    TargetOption,
    ThreadsOption,
    parse_inputs,
)
from whet.cli.console import Reporter
from whet.cli.models import engine_text
from whet.cli.tune import live_search


def compile_command(
    model: ModelArgument,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Artifact to write (.whet).")
    ],
    input: InputOption = None,
    threads: ThreadsOption = None,
    budget: BudgetOption = "0",
    numerics: NumericsOption = None,
    target: TargetOption = None,
    precision: PrecisionOption = None,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Compile a model and store it.

    The artifact holds the optimised graph, the weights and the schedules that were searched for,
    and no code: it is built for its target where it is loaded.  Ctrl-C during the search keeps
    what was measured, and writes no artifact.
    """
    reporter = Reporter(quiet=quiet, as_json=json)
    start = time.perf_counter()
    with live_search(reporter, f"compiling {model}") as watch:
        compiled = whet.compile(
            model,
            parse_inputs(input),
            threads,
            budget,
            target,
            numerics=numerics or "real",
            precision=precision,
            note=reporter.note,
            watch=watch,
        )
        graph = compiled.graph  # held, so that it is made again once only
        compiled.save(output)
    seconds = time.perf_counter() - start
    size, nodes = output.stat().st_size, len(graph.nodes)
    document = {
        "artifact": str(output),
        "bytes": size,
        "engine": compiled.engine,
        "target": compiled.target,
        "precision": compiled.precision,
        "nodes": nodes,
        "inputs": [str(s) for s in compiled.inputs],
        "outputs": [str(s) for s in compiled.outputs],
        "seconds": seconds,
    }
    reporter.result(
        document,
        lambda: reporter.text(
            f"{output}: {nodes} nodes, {size:,} bytes, {engine_text(compiled)}, {seconds:.2f} s"
        ),
    )
