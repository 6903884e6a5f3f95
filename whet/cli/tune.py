"""whet tune: a search for faster kernels of models, kept in the database."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer
from rich.live import Live
from rich.markup import escape
from rich.spinner import Spinner
from rich.table import Table

from whet.api.budget import parse_budget
from whet.api.compiler import thread_count
from whet.api.engine import Native, default_engine
from whet.api.tuning import tune_graphs
from whet.cli.arguments import (
    InputOption,
    JsonOption,
    NumericsOption,
    QuietOption,
    TargetOption,
    ThreadsOption,
    parse_inputs,
)
from whet.cli.console import Reporter, finite
from whet.cli.interrupts import heard
from whet.cli.models import open_model
from whet.core.errors import UsageError, check
from whet.tune.objectives import OBJECTIVES, make_objective
from whet.tune.policies import POLICIES
from whet.tune.report import Report, Status, Watch, shares
from whet.tune.tuner import Budget

DEFAULT_BUDGET = "1m"
SHOWN = 15
"""Tasks in the live table: those that take the most time."""

ModelsArgument = Annotated[
    list[str],
    typer.Argument(metavar="MODEL...", help="ONNX models; what they share is tuned once."),
]


def tune_command(
    models: ModelsArgument,
    budget: Annotated[
        str | None,
        typer.Option(help="Time to search: seconds, or 30s, 10m, 1h; 1m unless trials are given."),
    ] = None,
    trials: Annotated[int | None, typer.Option(min=1, help="Most trials to make.")] = None,
    objective: Annotated[
        str, typer.Option(metavar="|".join(OBJECTIVES), help="What is to become small.")
    ] = "total",
    target_ms: Annotated[
        list[float] | None,
        typer.Option(metavar="MS", help="targets: fast enough; one for all models, or one each."),
    ] = None,
    reference_ms: Annotated[
        list[float] | None,
        typer.Option(
            metavar="MS", help="speedup: what models are compared with; one for all, or one each."
        ),
    ] = None,
    patience: Annotated[
        int | None,
        typer.Option(min=1, help="early-stopping: trials of a task without any gain."),
    ] = None,
    policy: Annotated[
        str, typer.Option(metavar="|".join(POLICIES), help="How candidates are chosen.")
    ] = "default",
    input: InputOption = None,
    threads: ThreadsOption = None,
    numerics: NumericsOption = "real",
    target: TargetOption = None,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Search for faster kernels of models.

    Everything that is measured is kept at once, so stopping with Ctrl-C loses nothing; a later
    search goes on where this one stopped, and every later compile uses what was found.
    """
    reporter = Reporter(quiet=quiet, as_json=json)
    seconds = math.inf if budget is None and trials else parse_budget(budget or DEFAULT_BUDGET)
    aim = make_objective(
        objective, len(models), targets=[ms * 1e-3 for ms in target_ms or ()],
        references=[ms * 1e-3 for ms in reference_ms or ()], patience=patience,
    )  # fmt: skip
    check(policy in POLICIES, "WH1002", f"there is no policy '{policy}'",
          hint=", ".join(POLICIES), kind=UsageError)  # fmt: skip
    inputs = parse_inputs(input)
    opened = [
        open_model(m, inputs, reporter, threads=threads, numerics=numerics, target=target)
        for m in models
    ]
    exact = any(m.numerics == "exact" for m in opened)  # artifacts have their own
    names = {m.target for m in opened}
    check(len(names) == 1, "WH3007", f"the models are for several targets: {', '.join(names)}",
          hint="name one with --target", kind=UsageError)  # fmt: skip
    engine = default_engine(reporter.note, names.pop())
    check(isinstance(engine, Native), "WH3007", "only native code can be tuned", kind=UsageError)
    assert isinstance(engine, Native)
    latest: list[Report] = []

    with live_search(reporter, "looking for candidates") as show:

        def watch(reports: Sequence[Report], status: Status) -> None:
            latest[:] = reports
            show(reports, status)

        # A search that is stopped is a shorter search: what it found is in the database.
        with contextlib.suppress(KeyboardInterrupt):
            latest[:] = tune_graphs(
                [m.graph for m in opened], engine.target, thread_count(threads),
                Budget(seconds, trials), numerics="exact" if exact else "real", objective=aim,
                watch=watch, policy=POLICIES[policy],
            )  # fmt: skip
    heard()
    document = {
        "tasks": [_document(r, share) for r, share in zip(latest, shares(latest))],
        "trials": sum(r.trials for r in latest),
        "seconds_of_tasks": sum(r.total for r in latest),
    }
    rows = [_row(r, share) for r, share in zip(latest, shares(latest))]
    reporter.result(document, lambda: reporter.table(COLUMNS, rows))


COLUMNS = ("task", "weight", "trials", "default us", "best us", "gain", "GFLOP/s", "roofline",
           "share", "failed")  # fmt: skip


def _row(r: Report, share: float) -> tuple[str, ...]:
    def shown(value: float, form: str) -> str:
        return form.format(value) if math.isfinite(value) else "-"

    return (
        r.name, str(r.count), str(r.trials), shown(r.default_seconds * 1e6, "{:.1f}"),
        shown(r.best_seconds * 1e6, "{:.1f}"), shown(r.gain, "{:.2f}"),
        shown(r.gflops, "{:.1f}"), shown(100 * r.of_roofline, "{:.0f} %"),
        shown(100 * share, "{:.1f} %"), str(r.failed),
    )  # fmt: skip


def _document(r: Report, share: float) -> dict[str, object]:
    return {
        "task": r.name,
        "count": r.count,
        "trials": r.trials,
        "default_seconds": finite(r.default_seconds),
        "best_seconds": finite(r.best_seconds),
        "gflops": r.gflops if r.known else None,
        "of_roofline": r.of_roofline if r.known else None,
        "share": share,
        "outcomes": dict(r.outcomes),
        "schedule": r.schedule,
    }


@contextlib.contextmanager
def live_search(reporter: Reporter, before: str) -> Iterator[Watch]:
    """Shows how a search is going; until its first round has ended, the text."""
    waiting = Spinner("dots", escape(before))
    with Live(waiting, console=reporter.err, refresh_per_second=4, transient=True) as live:
        yield lambda reports, status: live.update(live_table(reports, status))


def live_table(reports: Sequence[Report], status: Status) -> Table:
    """The tasks that take the most time."""
    eta = f"{status.eta:.0f} s left" if math.isfinite(status.eta) else "no limit of time"
    rate = status.trials / status.elapsed if status.elapsed else 0.0
    untried = sum(not r.known for r in reports)
    waiting = f", {untried} tasks untried" if untried else ""
    title = f"{status.trials} trials, {rate:.1f} per second, {eta}{waiting}"
    table = Table(title=title, box=None, padding=(0, 1, 0, 0))
    # Where the terminal is narrow, names are cut off, and no numbers.
    table.add_column(COLUMNS[0], overflow="ellipsis")
    for name in COLUMNS[1:]:
        table.add_column(name, justify="right", no_wrap=True)
    known = [(r, s) for r, s in zip(reports, shares(reports)) if r.known]
    for r, share in sorted(known, key=lambda pair: -pair[1])[:SHOWN]:
        table.add_row(*_row(r, share))
    return table
