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
    QuietOption,
    ThreadsOption,
    parse_inputs,
)
from whet.cli.console import Reporter
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
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Compile a model and store it.

    The artifact holds the optimised graph, the weights and the schedules that were searched for,
    and no code.  Ctrl-C during the search keeps what was measured, and writes no artifact.
    """
    reporter = Reporter(quiet=quiet, as_json=json)
    start = time.perf_counter()
    with live_search(reporter, f"compiling {model}") as watch:
        compiled = whet.compile(
            model,
            parse_inputs(input),
            threads,
            budget,
            numerics=numerics or "real",
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
        "nodes": nodes,
        "inputs": [str(s) for s in compiled.inputs],
        "outputs": [str(s) for s in compiled.outputs],
        "seconds": seconds,
    }
    reporter.result(
        document,
        lambda: reporter.text(
            f"{output}: {nodes} nodes, {size:,} bytes, {compiled.engine}, {seconds:.2f} s"
        ),
    )
