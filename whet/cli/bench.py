"""whet bench: how fast is a model, and how fast is it elsewhere?"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from whet.api.arguments import thread_count
from whet.api.budget import parse_budget
from whet.api.compare import Tolerance, compare
from whet.api.samples import sample_values
from whet.cli.arguments import (
    BudgetOption,
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
from whet.cli.check import tensor_inputs
from whet.cli.console import Reporter, finite
from whet.cli.models import open_model
from whet.cli.peers.process import Worker
from whet.cli.peers.runtimes import RUNTIMES
from whet.cli.peers.turns import ROUNDS, Ratio, Timing, ratio, take_turns
from whet.core.errors import UsageError, check
from whet.core.types import Array
from whet.runtime.artifact import is_artifact

WHET = "whet"
WARN_ABOVE = 1e-3
"""Results that differ by more of their range than this get a note: speed is not comparable."""


def bench_command(
    model: ModelOrArtifact,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Runtimes to compare with, separated by commas, or none. By default onnxruntime, "
            "and none for an artifact, which others cannot read.",
        ),
    ] = None,
    threads: ThreadsOption = None,
    seconds: Annotated[
        float, typer.Option(metavar="S", min=0.01, help="Seconds of timing per runtime.")
    ] = 5.0,
    input: InputOption = None,
    budget: BudgetOption = "0",
    numerics: NumericsOption = None,
    target: TargetOption = None,
    precision: PrecisionOption = None,
    seed: SeedOption = 0,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Time a model on whet and on other runtimes.

    Every runtime has a process of its own.  They take turns, in an order that
    rotates, and each turn begins with an untimed call.  Ratios compare the
    medians of equal rounds; intervals are 95 % confidence intervals.
    """
    reporter = Reporter(quiet=quiet, as_json=json)
    stored = is_artifact(model)
    names = [WHET, *parse_peers(against or ("none" if stored else "onnxruntime"))]
    check(len(names) == 1 or not stored, "WH3007", "other runtimes cannot read an artifact",
          hint="--against none, or give the ONNX model", kind=UsageError)  # fmt: skip
    count, time_budget = thread_count(threads), parse_budget(budget)
    check(not (stored and time_budget), "WH3007", "an artifact is timed as it is",
          hint=f"whet tune {model}", kind=UsageError)  # fmt: skip
    given = parse_inputs(input)
    # Compiled here as the worker does it, whose messages nobody sees.
    compiled = open_model(
        model, given, reporter, threads=count, numerics=numerics, target=target,
        precision=precision,
    )  # fmt: skip
    values = sample_values(compiled.signature, given_values(given), seed)
    inputs = tensor_inputs(compiled, values)
    with contextlib.ExitStack() as stack:
        workers = {name: stack.enter_context(Worker(name, count)) for name in names}
        for name, worker in workers.items():
            with reporter.working(f"loading {name}"):
                worker.load(
                    str(Path(model).absolute()), inputs, budget=time_budget,
                    numerics=numerics or "real", target=target, precision=precision,
                )  # fmt: skip
        outputs = {name: worker.run() for name, worker in workers.items()}
        with reporter.steps("timing", ROUNDS * len(names)) as step:
            timings = take_turns(workers, seconds, progress=step)
    errors = {name: largest_error(outputs[name], outputs[WHET]) for name in names}
    for name, error in errors.items():
        if error > WARN_ABOVE:
            reporter.note(f"results of {name} differ from whet's by {error:.2g} of their range")
    ratios = {name: ratio(timings[name], timings[WHET]) for name in names[1:]}
    report(reporter, model, count, compiled.target, timings, ratios, errors)


def parse_peers(text: str) -> list[str]:
    """The names in a list such as `onnxruntime,openvino`."""
    names = [name.strip() for name in text.split(",") if name.strip() not in ("", "none")]
    known = [name for name in RUNTIMES if name != WHET]
    unknown = [name for name in names if name not in known]
    check(not unknown, "WH3007", f"no runtime is named {', '.join(unknown)}",
          hint=f"runtimes are {', '.join(known)}", kind=UsageError)  # fmt: skip
    return list(dict.fromkeys(names))


def largest_error(outputs: list[Array], expected: list[Array]) -> float:
    """The largest difference of any output, relative to that output's range."""
    pairs = zip(outputs, expected, strict=True)
    return max((compare("", a, b, Tolerance()).of_range for a, b in pairs), default=0.0)


def report(
    reporter: Reporter,
    model: str,
    threads: int,
    target: str,
    timings: dict[str, Timing],
    ratios: dict[str, Ratio],
    errors: dict[str, float],
) -> None:
    """Prints medians with their spread; never a mean."""
    rows = []
    for name, t in timings.items():
        r = ratios.get(name)
        rows.append(
            {
                "runtime": name,
                "median_ms": t.median * 1e3,
                "median_ms_interval": [t.low * 1e3, t.high * 1e3],
                "p90_ms": t.p90 * 1e3,
                "p99_ms": t.p99 * 1e3,
                "calls": t.calls,
                "ratio_to_whet": r and r.value,
                "ratio_interval": r and [r.low, r.high],
                "error_of_range": finite(errors[name]),
            }
        )

    def show() -> None:
        table = []
        for name, t in timings.items():
            r = ratios.get(name)
            table.append(
                [
                    name,
                    f"{t.median * 1e3:.3f}",
                    f"{t.low * 1e3:.3f} to {t.high * 1e3:.3f}",
                    f"{t.p90 * 1e3:.3f}",
                    f"{t.p99 * 1e3:.3f}",
                    f"{r.value:.2f}x" if r else "",
                    f"{r.low:.2f} to {r.high:.2f}" if r else "",
                    f"{errors[name]:.1e}" if r else "",
                    str(t.calls),
                ]
            )
        columns = ("runtime", "median ms", "interval", "p90 ms", "p99 ms", "time / whet",
                   "interval", "error", "calls")  # fmt: skip
        reporter.table(columns, table)
        reporter.text(f"{model}, {threads} threads, whet built for {target}")

    document = {"model": model, "threads": threads, "target": target, "runtimes": rows}
    reporter.result(document, show)
