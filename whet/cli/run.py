"""whet run: a model on given or random inputs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from whet.api.samples import sample_values
from whet.cli.arguments import (
    InputOption,
    JsonOption,
    ModelOrArtifact,
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
from whet.core.dtypes import DType, dtype_of, f32, i8, u8
from whet.core.types import Array, type_of
from whet.runtime.files import atomic_write


def run_command(
    model: ModelOrArtifact,
    input: InputOption = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write the results here (.npz)."),
    ] = None,
    threads: ThreadsOption = None,
    target: TargetOption = None,
    precision: PrecisionOption = None,
    seed: SeedOption = 0,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Run a model once and describe or store its results.

    Inputs that are not given as files are random.
    """
    reporter = Reporter(quiet=quiet, as_json=json)
    inputs = parse_inputs(input)
    compiled = open_model(
        model, inputs, reporter, threads=threads, target=target, precision=precision
    )
    values = sample_values(compiled.signature, given_values(inputs), seed)
    with reporter.working(f"running {model}"):
        start = time.perf_counter()
        results = compiled.results(*values)
        seconds = time.perf_counter() - start
    named = flat_arrays(results)
    if output is not None:
        save_arrays(output, named, reporter)
    rows = [describe_array(name, array) for name, array in named.items()]
    document = {
        "engine": compiled.engine,
        "target": compiled.target,
        "precision": compiled.precision,
        "seconds": seconds,
        "outputs": rows,
    }

    def show() -> None:
        columns = ["output", "type", "min", "max", "mean"]
        columns += [c for c in ("nan", "inf") if any(row[c] for row in rows)]
        reporter.table(columns, [[_show(row[c]) for c in columns] for row in rows])
        reporter.text(f"{seconds * 1e3:.3f} ms ({engine_text(compiled)})")

    reporter.result(document, show)


def flat_arrays(results: Mapping[str, Any]) -> dict[str, Array]:
    """The arrays of results by name; the items of a sequence `s` are `s[0]`, `s[1]`, ..."""
    found: dict[str, Array] = {}

    def add(name: str, value: Any) -> None:
        if isinstance(value, list):
            for n, item in enumerate(value):
                add(f"{name}[{n}]", item)
        elif value is not None:
            found[name] = value

    for name, value in results.items():
        add(name, value)
    return found


def describe_array(name: str, array: Array) -> dict[str, Any]:
    """Name, type and the range of the values; what is no finite number is counted apart."""
    row: dict[str, Any] = {"output": name, "type": str(type_of(array))}
    wide = array.astype(np.float64)
    numbers = wide[np.isfinite(wide)]
    for key, function in (("min", np.min), ("max", np.max), ("mean", np.mean)):
        row[key] = finite(float(function(numbers))) if numbers.size else None
    row["nan"] = int(np.isnan(wide).sum())
    row["inf"] = int(np.isinf(wide).sum())
    return row


def _show(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return "-" if value is None else str(value)


def save_arrays(path: Path, arrays: dict[str, Array], reporter: Reporter) -> None:
    """Writes an .npz file; types that NumPy's format lacks are widened, with a note."""
    stored = {}
    for name, array in arrays.items():
        stored[name] = storable(array)
        dtype, wide = dtype_of(array), dtype_of(stored[name])
        if wide != dtype:
            reporter.note(f"output '{name}' is {dtype}, which .npz cannot hold: stored as {wide}")
    with atomic_write(path) as file:
        np.savez(file, **stored)  # type: ignore[arg-type]


def storable(array: Array) -> Array:
    """The array in a type that NumPy's file format has."""
    return array.astype(_storable(dtype_of(array)).numpy, copy=False)


def _storable(dtype: DType) -> DType:
    if dtype.numpy.isbuiltin == 1:
        return dtype
    if dtype.is_float:
        return f32
    return i8 if dtype.kind == "int" else u8
