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


def compile_command(
    model: ModelArgument,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Artifact to write (.whet).")
    ],
    input: InputOption = None,
    threads: ThreadsOption = None,
    budget: BudgetOption = "0",
    numerics: NumericsOption = "real",
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Compile a model and store it.

    The artifact holds the optimised graph and the weights, and no code.
    """
    reporter = Reporter(quiet=quiet, as_json=json)
    start = time.perf_counter()
    with reporter.working(f"compiling {model}"):
        compiled = whet.compile(
            model,
            parse_inputs(input),
            threads,
            budget,
            numerics=numerics,
            note=reporter.note,
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
