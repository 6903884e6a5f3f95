"""whet reduce: the smallest part of a model that shows a problem."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from whet.api.arguments import thread_count
from whet.api.compare import Tolerance
from whet.cli.arguments import (
    InputOption,
    JsonOption,
    ModelArgument,
    NumericsOption,
    QuietOption,
    SeedOption,
    TargetOption,
    ThreadsOption,
    given_values,
    parse_inputs,
)
from whet.cli.console import Reporter
from whet.cli.interrupts import heard
from whet.cli.models import require_runnable
from whet.cli.run import storable
from whet.core.errors import UsageError, check
from whet.runtime.files import atomic_write

if TYPE_CHECKING:
    from whet.api.reduce.models import Reduced


def reduce_command(
    model: ModelArgument,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="ONNX file to write; MODEL.reduced.onnx if none."
        ),
    ] = None,
    failing: Annotated[
        bool,
        typer.Option(
            "--failing",
            help="Look for a failure, the default: it does not compile or run, or its results "
            "differ from the reference.",
        ),
    ] = False,
    mispriced: Annotated[
        float | None,
        typer.Option(
            metavar="FACTOR",
            help="Look for a kernel whose time is off its expected one by more than this.",
        ),
    ] = None,
    max_error: Annotated[
        float, typer.Option(help="Largest error allowed, relative to the range of an output.")
    ] = 1e-4,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="Time after which a trial counts as hanging.")
    ] = 120.0,
    module: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODULE",
            help="Module or Python file with operators or passes of your own; may be repeated.",
        ),
    ] = None,
    input: InputOption = None,
    threads: ThreadsOption = None,
    numerics: NumericsOption = None,
    target: TargetOption = None,
    seed: SeedOption = 0,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Find the smallest part of a model that shows a problem, and write it as ONNX.

    Every part is tried as a file of its own in a process that may crash or hang.  Values that it
    reads from the rest of the model become inputs, and their arrays are stored beside it where
    random ones do not show the problem.  Ctrl-C keeps the smallest part that was found so far.
    """
    check(not failing or mispriced is None, "WH3007", "--failing excludes --mispriced",
          kind=UsageError)  # fmt: skip
    check(mispriced is None or mispriced > 1, "WH3007", "the factor of --mispriced is 1 or less",
          kind=UsageError)  # fmt: skip
    check(timeout > 0, "WH3007", "--timeout must be more than 0", kind=UsageError)
    reporter = Reporter(quiet=quiet, as_json=json)
    require_runnable(target, reporter)
    # Imported here because it brings onnx, which `whet --help` should not wait for.
    from whet.api.reduce.findings import Question
    from whet.api.reduce.models import reduce_model

    inputs = parse_inputs(input)
    question = Question(
        Tolerance(max_error), mispriced, thread_count(threads), target, numerics or "real"
    )
    latest: list[Reduced] = []
    interrupted = True
    with reporter.stages() as begin, contextlib.suppress(KeyboardInterrupt):
        show = begin(f"reducing {model}")

        def watch(reduced: Reduced) -> None:
            latest[:] = [reduced]
            show(reduced.nodes_before - len(reduced.case.graph.nodes), reduced.nodes_before - 1)

        reduced = reduce_model(
            model, question, inputs, given_values(inputs), modules=module or (), timeout=timeout,
            seed=seed, note=reporter.note, watch=watch,
        )  # fmt: skip
        latest[:] = [reduced]
        interrupted = False
    if not latest:
        raise KeyboardInterrupt  # nothing was found yet
    heard()
    if interrupted:
        reporter.note("interrupted: this is the smallest part so far")
    path = output or Path(f"{Path(model).with_suffix('')}.reduced.onnx")
    files = write_reduced(path, latest[0])
    report(reporter, path, files, latest[0], interrupted)


def write_reduced(path: Path, reduced: Reduced) -> dict[str, Path]:
    """Writes the model, and the arrays of its inputs where they matter: these files by name."""
    from whet.graph.export import export_bytes

    with atomic_write(path) as file:
        file.write(export_bytes(reduced.case.graph))
    if not reduced.values_matter:
        return {}
    files = {}
    for name, array in reduced.case.arrays.items():
        plain = re.sub(r"[^\w-]", "_", name)
        files[name] = path.with_name(f"{path.stem}.{plain}.npy")
        with atomic_write(files[name]) as file:
            np.save(file, storable(array), allow_pickle=False)
    return files


def report(
    reporter: Reporter, path: Path, files: Mapping[str, Path], reduced: Reduced, interrupted: bool
) -> None:
    """Prints what was found."""
    operators = [node.op.name for node in reduced.case.graph.nodes]
    document = {
        "model": str(path),
        "inputs": {name: str(file) for name, file in files.items()},
        "nodes_before": reduced.nodes_before,
        "nodes": len(operators),
        "operators": operators,
        "problem": reduced.after.kind,
        "before": reduced.before.text,
        "after": reduced.after.text,
        "trials": reduced.trials,
        "interrupted": interrupted,
    }

    def show() -> None:
        reporter.text(f"{path}: {len(operators)} of {reduced.nodes_before} nodes, "
                      f"{reduced.trials} trials: {', '.join(operators)}")  # fmt: skip
        reporter.text(f"before  {reduced.before}")
        reporter.text(f"after   {reduced.after}")
        given = " ".join(f"--input {name}={file}" for name, file in files.items())
        if given:
            reporter.text(f"inputs  {given}")

    reporter.result(document, show)
