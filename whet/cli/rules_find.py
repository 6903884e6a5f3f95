"""whet rules generate and stats: finding rules by enumeration."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whet.cli.arguments import JsonOption, QuietOption, SeedOption
from whet.cli.console import Reporter
from whet.cli.interrupts import heard
from whet.cli.rules_common import (
    ExecutorOption,
    FolderOption,
    LettersOption,
    PoolOption,
    WithOption,
    WorkersOption,
    WriteOption,
    chosen_pools,
    executor_for,
    known_rules,
    outside_modules,
    show_report,
)
from whet.core.containers import usable_processors
from whet.superopt.rules.files import family
from whet.superopt.rules.store import write_folder

if TYPE_CHECKING:
    from whet.superopt.verify.gates import Report

OUTCOMES = ("proved", "refuted", "unproved", "alarm")
FUNNEL = {
    "size": "size",
    "sequences": "raw graphs",
    "canonical": "different",
    "visited": "walked",
    "pairs": "equal pairs",
    "disjoint": "nothing shared",
    "renamed": "renamed",
    "general": "no instance",
    "core": "core",
}
"""Columns of the funnel, in its order, with their headings."""
PROOFS = "proofs"
"""Where, in a folder of finished parts, the gates' reports are."""
PAPER = {"size": "TASO, 4", "pairs": "28,744", "renamed": "17,346", "general": "743"}
"""The paper's funnel: candidates, after renaming, after common subgraphs."""


def generate_command(
    size: Annotated[
        int,
        typer.Option(metavar="N", min=0, max=6, help="Operators per side; 0 builds no graphs."),
    ] = 3,
    pool: PoolOption = None,
    letters: LettersOption = None,
    outside: WithOption = None,
    exact: Annotated[
        bool,
        typer.Option(
            "--exact",
            help="A second pass: relu and max as they are on signed numbers, where the first pass "
            "takes them for any function.",
        ),
    ] = False,
    laws: Annotated[
        bool, typer.Option("--laws", help="Also the operators' laws, each as a rule of its own.")
    ] = False,
    write: WriteOption = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Keep finished parts there, and go on from those that are there."
        ),
    ] = None,
    workers: WorkersOption = 1,
    executor: ExecutorOption = "processes",
    seed: SeedOption = 0,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Find all rules up to a size, prove them and store them.

    The same seed gives the same files, byte for byte, whatever the workers.
    """
    from whet.superopt.generate.laws import as_stated, law_candidates, without_repetitions
    from whet.superopt.prune.candidates import Catalogue, find_candidates
    from whet.superopt.verify.axioms import laws as known_laws
    from whet.superopt.verify.gates import verify_forms

    reporter = Reporter(quiet=quiet, as_json=json)
    modules = outside_modules(outside)
    pools = chosen_pools(pool, letters, modules)
    runner = executor_for(executor, workers, modules)
    stated = law_candidates(known_laws() if laws else {})
    try:
        with reporter.stages() as begin:
            found = Catalogue((), ())
            if size:
                found = find_candidates(
                    pools,
                    size,
                    seed=seed,
                    exact=exact,
                    executor=runner,
                    threads=workers or usable_processors(),
                    folder=resume,
                    report=begin,
                )
            forms = tuple(
                tuple(dataclasses.replace(f, core=c.in_core) for f in c.forms)
                for c in found.to_prove
            )
            proofs = None if resume is None else resume / PROOFS
            reports = verify_forms(forms, seed, runner, begin("proofs"), 1, proofs)
            own = tuple(r.rule for r in reports if r.outcome == "proved")
            new = tuple((rule,) for rule in without_repetitions(stated.rules, own))
            of_laws = as_stated(verify_forms(new, seed, runner, begin("proofs of laws"), 1, proofs))
    except KeyboardInterrupt:
        heard()
        reporter.note(_how_to_go_on(resume))
        raise
    reports = (*reports, *of_laws)
    proved = tuple(r.rule for r in reports if r.outcome == "proved")
    if write is not None:
        write_folder(proved, write)
    outcomes = _counted(reports)
    document = {
        "funnel": [dataclasses.asdict(row) for row in found.funnel],
        "outcomes": outcomes,
        "laws": {"outcomes": _counted(of_laws), "left_out": dict(stated.left_out)},
    }

    def show() -> None:
        for name, reason in stated.left_out:
            reporter.text(f"no rule  {name}: {reason}")
        for r in reports:
            if r.outcome in ("unproved", "alarm"):
                show_report(r, reporter)
        reporter.text(", ".join(f"{n} {o}" for o, n in outcomes.items()))

    reporter.result(document, show)


def _counted(reports: Sequence[Report]) -> dict[str, int]:
    return {o: sum(r.outcome == o for r in reports) for o in OUTCOMES}


def _how_to_go_on(folder: Path | None) -> str:
    if folder is None:
        return "interrupted; with --resume FOLDER finished parts are kept for the next run"
    parts = len(list(folder.glob("*/shard-*-of-*.npz")))
    proofs = len(list((folder / PROOFS).glob("*")))
    return (
        f"interrupted; {parts} finished parts and {proofs} proofs are in {folder}: "
        "the same command goes on there"
    )


def stats_command(
    rules: FolderOption = None,
    size: Annotated[
        int, typer.Option(metavar="N", min=0, max=6, help="Also enumerate graphs up to this size.")
    ] = 0,
    pool: PoolOption = None,
    letters: LettersOption = None,
    outside: WithOption = None,
    workers: WorkersOption = 1,
    executor: ExecutorOption = "processes",
    seed: SeedOption = 0,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Count the rules by family, and how many of all graphs each step of pruning leaves."""
    reporter = Reporter(quiet=quiet, as_json=json)
    chosen = known_rules(rules)
    families = sorted({family(r) for r in chosen})
    counts = {f: sum(family(r) == f for r in chosen) for f in families}
    rows: list[dict[str, int]] = []
    if size:
        from whet.superopt.prune.candidates import find_candidates

        modules = outside_modules(outside)
        with reporter.stages() as begin:
            found = find_candidates(
                chosen_pools(pool, letters, modules),
                size,
                seed=seed,
                executor=executor_for(executor, workers, modules),
                threads=workers or usable_processors(),
                report=begin,
            )
        rows = [dataclasses.asdict(row) for row in found.funnel]
    total = {"all": len(chosen), "core": sum(r.core for r in chosen),
             "exact": sum(r.numeric == "exact" for r in chosen)}  # fmt: skip

    def show() -> None:
        for name, count in counts.items():
            reporter.text(f"{name:14}{count:6}")
        reporter.text("  ".join(f"{k} {v}" for k, v in total.items()))
        if rows:
            reporter.text("")
            shown = [[f"{row[key]:,}" for key in FUNNEL] for row in rows]
            paper = [PAPER.get(key, "") for key in FUNNEL]
            reporter.table(list(FUNNEL.values()), [*shown, paper])

    reporter.result({"families": counts, **total, "funnel": rows}, show)
