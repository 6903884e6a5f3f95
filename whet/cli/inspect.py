"""whet inspect: what a model consists of."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from whet.cli.arguments import (
    InputOption,
    JsonOption,
    ModelOrArtifact,
    NumericsOption,
    QuietOption,
    parse_inputs,
)
from whet.cli.console import Reporter
from whet.cli.models import open_model
from whet.graph.summary import summarize
from whet.graph.text import print_graph
from whet.runtime.files import atomic_write


def inspect_command(
    model: ModelOrArtifact,
    onnx: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the optimised graph as ONNX, for Netron."),
    ] = None,
    input: InputOption = None,
    numerics: NumericsOption = "real",
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Show the optimised graph of a model: text, operators, floating-point operations, bytes."""
    reporter = Reporter(quiet=quiet, as_json=json)
    compiled = open_model(model, parse_inputs(input), reporter, numerics=numerics)
    summary = summarize(compiled.graph)
    if onnx is not None:
        # Writing ONNX needs the onnx package, which reading an artifact does not.
        from whet.graph.export import export_model

        exported: Any = export_model(compiled.graph)
        with atomic_write(onnx) as file:
            file.write(exported.SerializeToString())
        reporter.note(f"wrote {onnx}")
    document = {
        "inputs": [str(s) for s in compiled.inputs],
        "outputs": [str(s) for s in compiled.outputs],
        "nodes": sum(summary.nodes.values()),
        "operators": dict(summary.nodes),
        "flops": summary.flops,
        "weight_bytes": summary.weight_bytes,
        "activation_bytes": summary.activation_bytes,
        "peak_bytes": summary.peak_bytes,
    }
    reporter.result(document, lambda: reporter.text(f"{print_graph(compiled.graph)}\n{summary}"))
