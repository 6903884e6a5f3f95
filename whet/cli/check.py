"""whet check: are the results right?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import whet
from whet.api.compare import Difference, Tolerance, compare
from whet.api.samples import sample_values
from whet.cli.arguments import (
    InputOption,
    JsonOption,
    ModelOrArtifact,
    NumericsOption,
    PrecisionOption,
    QuietOption,
    SeedOption,
    TargetOption,
    ThreadsOption,
    given_values,
    parse_inputs,
)
from whet.cli.console import Reporter, finite
from whet.cli.models import engine_text, open_model
from whet.cli.peers.process import Worker
from whet.cli.run import flat_arrays
from whet.core.errors import MismatchError, UsageError, check, fail
from whet.core.precision import PRECISIONS
from whet.core.types import Array
from whet.runtime.artifact import is_artifact

REFERENCE, ONNXRUNTIME = "reference", "onnxruntime"


def check_command(
    model: ModelOrArtifact,
    against: Annotated[
        str,
        typer.Option(
            metavar="reference|onnxruntime",
            help="reference: the unoptimised graph in double precision.",
        ),
    ] = REFERENCE,
    max_error: Annotated[
        float | None,
        typer.Option(
            help="Largest error allowed, relative to the range of an output; by default "
            + ", ".join(f"{p.tolerance:g} for {p.name}" for p in PRECISIONS.values())
            + "."
        ),
    ] = None,
    rtol: Annotated[
        float | None, typer.Option(help="Error allowed relative to each value.")
    ] = None,
    atol: Annotated[float | None, typer.Option(help="Absolute error allowed.")] = None,
    input: InputOption = None,
    threads: ThreadsOption = None,
    numerics: NumericsOption = None,
    target: TargetOption = None,
    precision: PrecisionOption = None,
    seed: SeedOption = 0,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Compare a compiled model with a reference on given or random inputs.

    Of an artifact the reference is the graph that is stored in it.  Exit code 6 if a result
    differs by more than the tolerance.
    """
    check(against in (REFERENCE, ONNXRUNTIME), "WH3007", f"cannot check against '{against}'",
          hint=f"{REFERENCE} or {ONNXRUNTIME}", kind=UsageError)  # fmt: skip
    check(against == REFERENCE or not is_artifact(model), "WH3007",
          "other runtimes cannot read an artifact",
          hint=f"--against {REFERENCE}, or give the ONNX model", kind=UsageError)  # fmt: skip
    reporter = Reporter(quiet=quiet, as_json=json)
    inputs = parse_inputs(input)
    compiled = open_model(
        model, inputs, reporter, threads=threads, numerics=numerics, target=target,
        precision=precision,
    )  # fmt: skip
    usual = PRECISIONS[compiled.precision].tolerance
    tolerance = Tolerance(usual if max_error is None else max_error, rtol, atol)
    values = sample_values(compiled.signature, given_values(inputs), seed)
    with reporter.working(f"running {model}"):
        results = compiled.results(*values)
    with reporter.working(f"running {against}"):
        wanted = expected_results(model, compiled, values, against)
    got = flat_arrays(results)
    expected = flat_arrays(dict(zip(results, wanted, strict=True)))
    differences = [compare(name, got[name], expected[name], tolerance) for name in got]
    report(reporter, differences, against, tolerance, engine_text(compiled))
    wrong = [d for d in differences if not d.within]
    if wrong:
        problems = (f"{d.name}: {d.problem}" for d in wrong if d.problem)
        fail(
            "WH3004",
            f"{len(wrong)} of {len(differences)} outputs differ from {against} by more than "
            f"{tolerance}",
            *problems,
            kind=MismatchError,
        )


def expected_results(
    model: str, compiled: whet.CompiledModel, values: tuple[Any, ...], against: str
) -> tuple[Any, ...]:
    """The expected results, one value per output."""
    if against != REFERENCE:
        return tuple(onnxruntime_results(model, compiled, values))
    # Imported here because it brings onnx, which `whet --help` should not wait for.
    from whet.api.reference import reference_results, stored_reference_results

    if is_artifact(model):
        return stored_reference_results(compiled, values)
    return reference_results(model, [p.name for p in compiled.signature.arguments], values)


def report(
    reporter: Reporter,
    differences: list[Difference],
    against: str,
    tolerance: Tolerance,
    engine: str,
) -> None:
    """Prints the differences."""
    rows = [
        {
            "output": d.name,
            "max_abs": finite(d.max_abs),
            "max_rel": finite(d.max_rel),
            "of_range": finite(d.of_range),
            "within": d.within,
            "problem": d.problem,
        }
        for d in differences
    ]
    document = {
        "against": against,
        "engine": engine,
        "tolerance": str(tolerance),
        "ok": all(d.within for d in differences),
        "outputs": rows,
    }

    def show() -> None:
        reporter.table(
            ("output", "max abs error", "max rel error", "of the range", ""),
            [
                [d.name, f"{d.max_abs:.3g}", f"{d.max_rel:.3g}", f"{d.of_range:.3g}",
                 "ok" if d.within else "differs"]
                for d in differences
            ],
        )  # fmt: skip
        reporter.text(f"against {against}, tolerance {tolerance}, engine: {engine}")

    reporter.result(document, show)


def onnxruntime_results(
    model: str, compiled: whet.CompiledModel, values: tuple[Any, ...]
) -> list[Array]:
    """The results of ONNX Runtime, which runs in a process of its own."""
    inputs = tensor_inputs(compiled, values)
    with Worker(ONNXRUNTIME, threads=1) as worker:
        worker.load(str(Path(model).absolute()), inputs)
        return worker.run()


def tensor_inputs(compiled: whet.CompiledModel, values: tuple[Any, ...]) -> dict[str, Array]:
    """The inputs by name; an error if one is not a tensor, which workers do not take."""
    ports = (*compiled.signature.arguments, *compiled.signature.results)
    odd = [p.name for p in ports if not isinstance(p.structure, int)]
    check(not odd, "WH3005", f"{', '.join(odd)}: other runtimes are given tensors only",
          kind=UsageError)  # fmt: skip
    return {p.name: v for p, v in zip(compiled.signature.arguments, values, strict=True)}
