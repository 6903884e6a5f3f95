"""whet inspect: what a model consists of."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whet.api.arguments import thread_count
from whet.api.compiled import CompiledModel
from whet.api.native import known_records
from whet.cli.arguments import (
    InputOption,
    JsonOption,
    ModelOrArtifact,
    NumericsOption,
    PrecisionOption,
    QuietOption,
    TargetOption,
    ThreadsOption,
    parse_inputs,
)
from whet.cli.console import Reporter
from whet.cli.models import open_model
from whet.core.caching import FileCache
from whet.core.config import process_config
from whet.core.errors import RecordsError, UsageError, fail
from whet.graph.summary import summarize
from whet.graph.text import print_graph
from whet.ops.base import Numeric
from whet.runtime.files import atomic_write

if TYPE_CHECKING:
    from whet.build.views import KernelView
    from whet.db.store import Database


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
    precision: PrecisionOption = None,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Show the optimised graph of a model: text, operators, floating-point operations, bytes."""
    reporter = Reporter(quiet=quiet, as_json=json)
    compiled = open_model(
        model, parse_inputs(input), reporter, threads=threads, numerics=numerics, target=target,
        precision=precision, to_run=False,
    )  # fmt: skip
    if kernel is not None:
        show_kernel(compiled, kernel, threads, reporter)
        return
    graph = compiled.graph
    summary = summarize(graph)
    if onnx is not None:
        # Writing ONNX needs the onnx package, which reading an artifact does not.
        from whet.graph.export import export_bytes

        with atomic_write(onnx) as file:
            file.write(export_bytes(graph))
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
    try:
        with known_records() as records:
            views = _kernels(compiled, threads, records)
    except RecordsError:  # compiling has told why
        views = _kernels(compiled, threads, None)
    found = [v for n, v in enumerate(views) if wanted == str(n) or wanted in v.names]
    if not found:
        listed = [f"{n}: {', '.join(v.names[:4])}" for n, v in enumerate(views)]
        fail("WH3007", f"no kernel is '{wanted}'", *listed, kind=UsageError)
    code, price = found[0].kernel.source.text, found[0].price
    document = {"task": found[0].task, "price": price and asdict(price),
                "estimates": found[0].costs(), "ir": code}  # fmt: skip
    reporter.result(document, lambda: reporter.text(found[0].text()))


def _kernels(
    compiled: CompiledModel, threads: int | None, records: Database | None
) -> tuple[KernelView, ...]:
    """The kernels that a call runs, with prices from what was measured."""
    from whet.build.backend import backend_of, find_target
    from whet.build.views import kernel_views  # loads the compiler
    from whet.tasks.price import no_evidence
    from whet.tune.prices import RecordedPrice
    from whet.tune.schedule import Schedules

    numerics: Numeric = "exact" if compiled.numerics == "exact" else "real"
    named = find_target(compiled.target, FileCache(process_config().cache))
    target = backend_of(named).in_precision(named, compiled.precision)
    graph, count = compiled.graph, backend_of(target).used_threads(thread_count(threads))
    known = Schedules(target, count, numerics, records, compiled.schedules(graph))
    weights = graph.constant_bytes
    own = backend_of(target).price(target, count, numerics, no_evidence, weights)
    price = RecordedPrice(own, known)
    return kernel_views(graph, target, count, numerics, schedule=known, price=price)
