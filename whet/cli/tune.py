"""whet tune: a search for faster kernels of models, kept in the database."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated

import typer
from rich.live import Live
from rich.markup import escape
from rich.spinner import Spinner
from rich.table import Table

from whet.api.arguments import thread_count
from whet.api.budget import parse_budget
from whet.api.engine import tuned_target
from whet.api.engines import default_engine
from whet.build.backend import backend_of
from whet.cli.arguments import (
    InputOption,
    JsonOption,
    NumericsOption,
    PrecisionOption,
    QuietOption,
    TargetOption,
    ThreadsOption,
    parse_inputs,
)
from whet.cli.console import Reporter, finite
from whet.cli.interrupts import heard
from whet.cli.models import open_model
from whet.core.errors import UsageError, check
from whet.db.place import records_path
from whet.db.store import Database
from whet.joint.tuning import tune_graphs
from whet.tune.models.learners import DEFAULT_LEARNER, LEARNERS
from whet.tune.objectives import OBJECTIVES, make_objective
from whet.tune.policies import find_policy, policy_names
from whet.tune.report import Refining, Report, Status, Watch, shares
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
        str, typer.Option(metavar="|".join(policy_names()), help="How candidates are chosen.")
    ] = "default",
    model: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(LEARNERS),
            help=f"Cost model of a policy that learns; {DEFAULT_LEARNER} by default.",
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
    """Search for faster kernels of models.

    Everything that is measured is kept at once, so stopping with Ctrl-C loses nothing; a later
    search goes on where this one stopped, and every later compile uses what was found.  For GPUs,
    the last fifth of the time is for exchanging kernels inside the whole network.
    """
    reporter = Reporter(quiet=quiet, as_json=json)
    seconds = math.inf if budget is None and trials else parse_budget(budget or DEFAULT_BUDGET)
    aim = make_objective(
        objective, len(models), targets=[ms * 1e-3 for ms in target_ms or ()],
        references=[ms * 1e-3 for ms in reference_ms or ()], patience=patience,
    )  # fmt: skip
    chosen = find_policy(policy, model)
    kept = kept_trials()  # fails now, and not after an hour, if nothing can be kept
    inputs = parse_inputs(input)
    opened = [
        open_model(m, inputs, reporter, threads=threads, numerics=numerics, target=target,
                   precision=precision)
        for m in models
    ]  # fmt: skip
    exact = any(m.numerics == "exact" for m in opened)  # artifacts have their own
    names = {m.target for m in opened}
    check(len(names) == 1, "WH3007", f"the models are for several targets: {', '.join(names)}",
          hint="name one with --target", kind=UsageError)  # fmt: skip
    ways = {m.precision for m in opened}
    check(len(ways) == 1, "WH3007", f"the models have several precisions: {', '.join(ways)}",
          hint="tune them one after the other", kind=UsageError)  # fmt: skip
    found = tuned_target(default_engine(reporter.note, names.pop(), ways.pop()))
    latest: list[Report] = []
    networks: dict[str, Refining] = {}
    interrupted = True

    with live_search(reporter, "looking for candidates") as show:

        def watch(reports: Sequence[Report], status: Status) -> None:
            latest[:] = reports
            if status.refining is not None:
                networks[status.refining.network] = status.refining
            show(reports, status)

        # A search that is stopped is a shorter search: what it found is in the database.
        with contextlib.suppress(KeyboardInterrupt):
            latest[:] = tune_graphs(
                [m.graph for m in opened], found,
                backend_of(found).used_threads(thread_count(threads)),
                Budget(seconds, trials), numerics="exact" if exact else "real", objective=aim,
                watch=watch, policy=chosen,
            )  # fmt: skip
            interrupted = False
    heard()
    if interrupted:
        reporter.note(f"interrupted, {kept_trials() - kept} trials kept")
    document = {
        "tasks": [_document(r, share) for r, share in zip(latest, shares(latest))],
        "trials": sum(r.trials for r in latest),
        "seconds_of_tasks": sum(r.total for r in latest),
        "networks": [_network_document(r) for r in networks.values()],
        "interrupted": interrupted,
    }
    rows = [_row(r, share) for r, share in zip(latest, shares(latest))]
    reporter.result(document, lambda: reporter.table(COLUMNS, rows))
    if reporter.err.is_terminal:  # elsewhere it has been told on the way
        for state in networks.values():
            reporter.note(inside(state))


COLUMNS = ("task", "weight", "trials", "default us", "best us", "gain", "GFLOP/s", "roofline",
           "share", "failed")  # fmt: skip
BY_IMPORTANCE = ("best us", "gain", "share", "trials", "default us", "roofline", "GFLOP/s",
                 "weight", "failed")  # fmt: skip
NAME_WIDTH = 12
"""What a narrow terminal leaves of the name."""
SECONDS_BETWEEN_LINES = 10.0
"""How often a search tells how it is going where there is no terminal."""


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


def _network_document(r: Refining) -> dict[str, object]:
    return {
        "network": r.network,
        "tried": r.tried,
        "changed": r.changed,
        "seconds_before": finite(r.before),
        "seconds": finite(r.seconds),
        "problem": r.problem,
    }


def inside(r: Refining) -> str:
    """The state of the search inside a network."""
    if r.problem:
        return f"{r.network}: not timed as a whole, {r.problem}"
    known = math.isfinite(r.seconds)
    gained = f", {r.before * 1e3:.3f} -> {r.seconds * 1e3:.3f} ms" if known else ""
    return f"{r.network}: {r.tried} exchanges tried, {r.changed} tasks changed{gained}"


def kept_trials() -> int:
    """Measurements in the database, which must be one that can be written."""
    with Database(records_path(), to_write=True) as database:
        return sum(database.stats().measurements.values())


# -------------------------------------------------------------------------------------- progress
@contextlib.contextmanager
def live_search(reporter: Reporter, before: str) -> Iterator[Watch]:
    """Shows how a search is going: a live table on a terminal, now and then a line elsewhere.

    Until the first round of the search has ended, a terminal shows the text.
    """
    if not reporter.err.is_terminal:
        yield lines_of_progress(reporter.note)
        return
    waiting = Spinner("dots", escape(before))
    with Live(waiting, console=reporter.err, refresh_per_second=4, transient=True) as live:
        yield lambda reports, status: live.update(live_table(reports, status, reporter.err.width))


def lines_of_progress(note: Callable[[str], None]) -> Watch:
    """Tells how a search is going after its first round, and then from time to time."""
    next_time = 0.0

    def watch(reports: Sequence[Report], status: Status) -> None:
        nonlocal next_time
        if status.refining is not None:
            if status.refining.ended or status.elapsed >= next_time:
                next_time = status.elapsed + SECONDS_BETWEEN_LINES
                note(headline(reports, status))
        elif status.elapsed >= next_time:
            next_time = status.elapsed + SECONDS_BETWEEN_LINES
            known = [r for r in reports if r.known and math.isfinite(r.default_seconds)]
            before = sum(r.count * r.default_seconds for r in known)
            now = sum(r.total for r in known)
            note(f"{headline(reports, status)}; tuned tasks take {now * 1e3:.3f} ms, "
                 f"by default {before * 1e3:.3f} ms")  # fmt: skip

    return watch


def headline(reports: Sequence[Report], status: Status) -> str:
    eta = f"{status.eta:.0f} s left" if math.isfinite(status.eta) else "no limit of time"
    if status.refining is not None:
        return f"{inside(status.refining)}, {eta}"
    rate = status.trials / status.elapsed if status.elapsed else 0.0
    untried = sum(not r.known for r in reports)
    waiting = f", {untried} tasks untried" if untried else ""
    return f"{status.trials} trials, {rate:.1f} per second, {eta}{waiting}"


def live_table(reports: Sequence[Report], status: Status, width: int) -> Table:
    """The tasks that take the most time, in as many columns as the terminal has room for."""
    known = [(r, s) for r, s in zip(reports, shares(reports)) if r.known]
    rows = [_row(r, s) for r, s in sorted(known, key=lambda pair: -pair[1])[:SHOWN]]
    table = Table(title=headline(reports, status), box=None, padding=(0, 1, 0, 0))
    shown, room = fitting_columns(rows, width - NAME_WIDTH)
    # Where the terminal is narrow, names are cut off, and no numbers.
    table.add_column(COLUMNS[0], overflow="ellipsis", no_wrap=True, max_width=room + NAME_WIDTH - 1)
    for n in shown:
        table.add_column(COLUMNS[n], justify="right", no_wrap=True)
    for row in rows:
        table.add_row(row[0], *(row[n] for n in shown))
    return table


def fitting_columns(rows: Sequence[Sequence[str]], room: int) -> tuple[list[int], int]:
    """The numbers of the columns to show beside the name, the most telling ones that fit, and
    the room that they leave."""
    chosen: list[int] = []
    for name in BY_IMPORTANCE:
        n = COLUMNS.index(name)
        needed = max(len(text) for text in (name, *(row[n] for row in rows))) + 1
        if needed > room:
            break
        room -= needed
        chosen.append(n)
    return sorted(chosen), room
