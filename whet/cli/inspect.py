"""whet inspect: what a model consists of."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from whet.api.arguments import thread_count
from whet.api.compiled import CompiledModel
from whet.cli.arguments import (
    InputOption,
    JsonOption,
    ModelOrArtifact,
    NumericsOption,
    QuietOption,
    TargetOption,
    ThreadsOption,
    parse_inputs,
)
from whet.cli.console import Reporter
from whet.cli.models import open_model
from whet.core.caching import FileCache
from whet.core.config import process_config
from whet.core.errors import UsageError, fail
from whet.graph.summary import summarize
from whet.graph.text import print_graph
from whet.ops.base import Numeric
from whet.runtime.files import atomic_write


def inspect_command(
    model: ModelOrArtifact,
    onnx: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the optimised graph as ONNX, for Netron."),
    ] = None,
    kernel: Annotated[
        str | None,
        typer.Option(
            metavar="K",
            help="Show a kernel from task to assembly: its number, or a node that it computes.",
        ),
    ] = None,
    input: InputOption = None,
    threads: ThreadsOption = None,
    numerics: NumericsOption = None,
    target: TargetOption = None,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Show the optimised graph of a model: text, operators, floating-point operations, bytes."""
    reporter = Reporter(quiet=quiet, as_json=json)
    compiled = open_model(
        model, parse_inputs(input), reporter, threads=threads, numerics=numerics, target=target,
        to_run=False,
    )  # fmt: skip
    if kernel is not None:
        show_kernel(compiled, kernel, threads, reporter)
        return
    graph = compiled.graph
    summary = summarize(graph)
    if onnx is not None:
        # Writing ONNX needs the onnx package, which reading an artifact does not.
        from whet.graph.export import export_model

        exported: Any = export_model(graph)
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
        "runs": compiled.describe(),
    }
    shown = "\n".join([print_graph(graph), str(summary), *compiled.describe()])
    reporter.result(document, lambda: reporter.text(shown))


def show_kernel(
    compiled: CompiledModel, wanted: str, threads: int | None, reporter: Reporter
) -> None:
    """The kernel with this number, or that computes a node of this name; else their list."""
    from whet.build.backend import find_target
    from whet.build.views import kernel_views  # loads the compiler
    from whet.tune.schedule import Schedules

    numerics: Numeric = "exact" if compiled.numerics == "exact" else "real"
    target = find_target(compiled.target, FileCache(process_config().cache))
    graph, count = compiled.graph, thread_count(threads)
    known = Schedules(target, count, numerics, stored=compiled.schedules(graph))
    views = kernel_views(graph, target, count, numerics, schedule=known, evidence=known.faster)
    found = [v for n, v in enumerate(views) if wanted == str(n) or wanted in v.names]
    if not found:
        listed = [f"{n}: {', '.join(v.names[:4])}" for n, v in enumerate(views)]
        fail("WH3007", f"no kernel is '{wanted}'", *listed, kind=UsageError)
    code = found[0].kernel.source.text
    document = {"task": found[0].task, "estimates": found[0].costs(), "ir": code}
    reporter.result(document, lambda: reporter.text(found[0].text()))
