"""whet tune: a search for faster kernels of a model, kept in the database."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.live import Live
from rich.table import Table

from whet.api.budget import parse_budget
from whet.api.compiler import thread_count
from whet.api.engine import Native, default_engine
from whet.api.tuning import tune_graphs
from whet.cli.arguments import (
    InputOption,
    JsonOption,
    ModelArgument,
    NumericsOption,
    QuietOption,
    ThreadsOption,
    parse_inputs,
)
from whet.cli.console import Reporter
from whet.cli.interrupts import heard
from whet.cli.models import open_model
from whet.core.errors import UsageError, check
from whet.tune.tuner import Report


def tune_command(
    model: ModelArgument,
    budget: Annotated[str, typer.Option(help="Time to search: seconds, or 30s, 10m, 1h.")] = "1m",
    trials: Annotated[int | None, typer.Option(min=1, help="Most trials to make.")] = None,
    input: InputOption = None,
    threads: ThreadsOption = None,
    numerics: NumericsOption = "real",
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Search for faster kernels of a model.

    Everything that is measured is kept at once, so stopping with Ctrl-C loses nothing; a later
    search goes on where this one stopped, and `whet compile --budget` uses what was found.
    """
    reporter = Reporter(quiet=quiet, as_json=json)
    compiled = open_model(model, parse_inputs(input), reporter, threads=threads, numerics=numerics)
    engine = default_engine()
    check(isinstance(engine, Native), "WH3007", "only native code can be tuned", kind=UsageError)
    assert isinstance(engine, Native)
    latest: list[Report] = []

    with Live(console=reporter.err, refresh_per_second=2, transient=True) as live:

        def watch(reports: Sequence[Report], left: float) -> None:
            latest[:] = reports
            live.update(_table(reports, left))

        # A search that is stopped is a shorter search: what it found is in the database.
        with contextlib.suppress(KeyboardInterrupt):
            latest[:] = tune_graphs(
                [compiled.graph], engine.target, thread_count(threads), parse_budget(budget),
                numerics="exact" if numerics == "exact" else "real", trials=trials, watch=watch,
            )  # fmt: skip
    heard()
    document = {"tasks": [_document(r) for r in latest], "trials": sum(r.trials for r in latest)}
    reporter.result(document, lambda: reporter.table(_COLUMNS, [_row(r) for r in latest]))


_COLUMNS = ("task", "count", "trials", "default us", "best us", "gain", "failed")


def _row(r: Report) -> tuple[str, ...]:
    failed = sum(n for outcome, n in r.outcomes.items() if outcome != "ok")
    gain = r.default_seconds / r.best_seconds if r.best_seconds else math.nan
    known = math.isfinite(r.best_seconds) and math.isfinite(r.default_seconds)
    return (
        r.name, str(r.count), str(r.trials),
        f"{r.default_seconds * 1e6:.1f}" if math.isfinite(r.default_seconds) else "-",
        f"{r.best_seconds * 1e6:.1f}" if math.isfinite(r.best_seconds) else "-",
        f"{gain:.2f}" if known else "-", str(failed),
    )  # fmt: skip


def _document(r: Report) -> dict[str, object]:
    def finite(seconds: float) -> float | None:
        return seconds if math.isfinite(seconds) else None

    return {
        "task": r.name,
        "count": r.count,
        "trials": r.trials,
        "default_seconds": finite(r.default_seconds),
        "best_seconds": finite(r.best_seconds),
        "outcomes": dict(r.outcomes),
    }


def _table(reports: Sequence[Report], left: float) -> Table:
    """The tasks that take the most time, live."""
    known = [r for r in reports if math.isfinite(r.best_seconds)]
    total = sum(r.count * r.best_seconds for r in known)
    table = Table(title=f"{sum(r.trials for r in reports)} trials, {left:.0f} s left", box=None)
    for n, name in enumerate((*_COLUMNS, "share")):
        table.add_column(name, justify="right" if n else "left", no_wrap=True)
    for r in sorted(known, key=lambda r: -r.count * r.best_seconds)[:15]:
        table.add_row(*_row(r), f"{100 * r.count * r.best_seconds / total:.0f} %")
    return table
