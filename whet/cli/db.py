"""whet db: what tuning has found out so far."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.api.arguments import thread_count
from whet.api.engines import default_engine
from whet.build.backend import backend_of
from whet.cli.arguments import (
    InputOption,
    JsonOption,
    ModelOrArtifact,
    NumericsOption,
    QuietOption,
    ThreadsOption,
    parse_inputs,
)
from whet.cli.console import Reporter
from whet.cli.models import open_model
from whet.core.errors import UsageError, fail
from whet.db.exchange import ImportReport, export_lines, import_lines
from whet.db.place import records_path
from whet.db.store import Database
from whet.ops.base import Numeric
from whet.runtime.artifact import is_artifact, read_artifact
from whet.runtime.files import atomic_write
from whet.tasks.task import Task

if TYPE_CHECKING:
    from whet.tune.schedule import Schedules

db_app = typer.Typer(help="Show, carry and check what tuning has found out.", no_args_is_help=True,
                     add_completion=False)  # fmt: skip

DatabaseOption = Annotated[
    Path | None,
    typer.Option("--db", metavar="FILE", help="The database; WHET_DB_PATH by default."),
]


def open_database(path: Path | None) -> Database:
    """The database of an option, which must be there."""
    return Database(records_path(path), read_only=True)


@db_app.command("stats")
def stats_command(db: DatabaseOption = None, json: JsonOption = False) -> None:
    """Show how much the database holds."""
    reporter = Reporter(as_json=json)
    with open_database(db) as database:
        found = database.stats()
    numbers = {
        "targets": found.targets,
        "workloads": found.workloads,
        "classes": found.classes,
        "records": found.records,
        "measurements": sum(found.measurements.values()),
        "models": found.models,
        "bytes": found.bytes,
    }
    outcomes = [(f"  {name}", str(count)) for name, count in found.measurements.items()]
    rows = [(name, str(count)) for name, count in numbers.items()]
    at = list(numbers).index("measurements") + 1
    reporter.result(
        {**numbers, "outcomes": found.measurements},
        lambda: reporter.table(("", "count"), [*rows[:at], *outcomes, *rows[at:]]),
    )


@db_app.command("export")
def export_command(
    file: Annotated[str, typer.Argument(metavar="FILE", help="JSON lines; - is standard output.")],
    db: DatabaseOption = None,
    quiet: QuietOption = False,
) -> None:
    """Write all measurements as lines of JSON."""
    count = 0
    with open_database(db) as database:
        if file == "-":
            for line in export_lines(database):
                sys.stdout.write(f"{line}\n")
            return
        with atomic_write(file) as stream:
            for line in export_lines(database):
                stream.write(f"{line}\n".encode())
                count += 1
    Reporter(quiet=quiet).note(f"wrote {count} measurements to {file}")


@db_app.command("import")
def import_command(
    file: Annotated[str, typer.Argument(metavar="FILE", help="JSON lines; - is standard input.")],
    db: DatabaseOption = None,
    json: JsonOption = False,
) -> None:
    """Add measurements from lines of JSON; lines of other tuners are counted and refused."""
    reporter = Reporter(as_json=json)
    with Database(records_path(db), to_write=True) as database:
        report = _import(database, file)
    if report.refused and not report.added + report.known:
        fail("WH4104", f"no line of '{file}' is a record of whet", *report.lines()[1:])
    document = {"added": report.added, "known": report.known, "refused": dict(report.refused)}
    reporter.result(document, lambda: reporter.text("\n".join(report.lines())))


def _import(database: Database, file: str) -> ImportReport:
    if file == "-":
        return import_lines(database, sys.stdin)
    try:
        with Path(file).open(encoding="utf-8", errors="replace") as stream:
            return import_lines(database, stream)
    except OSError as error:
        fail("WH4104", f"cannot read '{file}': {error.strerror or error}", kind=UsageError)


@db_app.command("doctor")
def doctor_command(db: DatabaseOption = None, json: JsonOption = False) -> None:
    """Check the database; damage is listed, and the exit code is 1."""
    reporter = Reporter(as_json=json)
    with open_database(db) as database:
        problems = database.problems()
        path = database.path
    if problems:
        fail("WH4101", f"the tuning database '{path}' is damaged", *problems[:20],
             hint="export what can be read, move the file away, import it")  # fmt: skip
    reporter.result({"problems": []}, lambda: reporter.text(f"{path} is sound"))


@db_app.command("explain")
def explain_command(
    model: ModelOrArtifact,
    input: InputOption = None,
    threads: ThreadsOption = None,
    numerics: NumericsOption = None,
    db: DatabaseOption = None,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Show for every task of a model which schedule it gets, and why."""
    from whet.build.tasks import planned  # loads LLVM: only when needed
    from whet.joint.tuning import weighted_tasks
    from whet.tune.schedule import Schedules

    reporter = Reporter(quiet=quiet, as_json=json)
    compiled = open_model(model, parse_inputs(input), reporter, threads=threads, numerics=numerics)
    target = default_engine(reporter.note, compiled.target, compiled.precision).target
    if target is None:
        fail("WH3007", "only native code has schedules", kind=UsageError)
    kind: Numeric = "exact" if compiled.numerics == "exact" else "real"
    count = backend_of(target).used_threads(thread_count(threads))
    stored = read_artifact(model).schedules if is_artifact(model) else ()
    with Database(records_path(db)) as database:
        schedules = Schedules(target, count, kind, database, stored)
        plans = planned(compiled.graph, target, count, kind, schedules.faster)
        within = {key: schedules.within(plan.key) for plan in plans for key in plan.tasks}
        found: list[dict[str, Any]] = [
            {"task": w.name, "count": w.count, "key": w.task.key}
            | _explain(w.task, within[w.task.key], database)
            for w in weighted_tasks([compiled.graph], target, count, kind, schedules.faster)
            if not w.alternative
        ]
    times = [t["count"] * t["microseconds"] for t in found]
    for t, microseconds in zip(found, times):
        t["share"] = round(microseconds / sum(times), 4)
        t["microseconds"] = round(t["microseconds"], 3)
    reporter.result(
        {"tasks": found, "microseconds": round(sum(times), 3)},
        lambda: reporter.table(
            tuple(_SHOWN), [[str(t[field]) for field in _SHOWN.values()] for t in found],
            text=("from", "schedule"),
        ),
    )  # fmt: skip


_SHOWN = {
    "task": "task", "count": "count", "from": "origin", "us": "microseconds",
    "share": "share", "GFLOP/s": "gflops", "of roofline": "roofline", "trials": "trials",
    "failed": "failed", "similar": "similar", "schedule": "schedule",
}  # fmt: skip


def _explain(task: Task, schedules: Schedules, database: Database) -> dict[str, object]:
    """The origin of the schedule, what was tried for it, and how near the limit it is."""
    from whet.tune.roofline import roofline_seconds

    target, threads = schedules.target, schedules.threads
    chosen = schedules.chosen(task)
    tried = list(database.records(task.key, target, threads))
    outcomes = Counter(r.outcome.value for r in tried)
    others = database.similar(task.class_key, target, threads)
    return {
        "origin": chosen.origin,
        "microseconds": chosen.seconds * 1e6,
        "gflops": round(task.operations / chosen.seconds * 1e-9, 1),
        "roofline": round(roofline_seconds(task, target, threads) / chosen.seconds, 3),
        "trials": len(tried),
        "failed": len(tried) - outcomes["ok"],
        "outcomes": dict(outcomes),
        "similar": sum(r.workload.key != task.key for r in others),
        "schedule": str(chosen.candidate),
    }
