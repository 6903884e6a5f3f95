"""whet rules: the rewrite rules, their proofs, and how they are found."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whet.cli.arguments import JsonOption, QuietOption, SeedOption
from whet.cli.console import Reporter
from whet.core.errors import MismatchError, UsageError, check, fail
from whet.core.executor import Executor, LocalProcesses, Serial
from whet.core.ray_executor import RayCluster
from whet.superopt.rules.drawing import draw, explain
from whet.superopt.rules.files import (
    family,
    load_folder,
    read_candidates,
    shipped,
    write_folder,
)
from whet.superopt.rules.rule import Rule

if TYPE_CHECKING:
    from whet.superopt.verify.gates import Report

rules_app = typer.Typer(name="rules", help="The rewrite rules and their proofs.",
                        no_args_is_help=True)  # fmt: skip

FolderOption = Annotated[
    Path | None, typer.Option("--rules", metavar="FOLDER", help="Rules other than whet's own.")
]
WriteOption = Annotated[
    Path | None, typer.Option("--write", metavar="FOLDER", help="Store the proved rules there.")
]
WorkersOption = Annotated[
    int, typer.Option("--workers", metavar="N", help="Workers; 1 process stays in this one.")
]
ExecutorOption = Annotated[
    str, typer.Option("--executor", metavar="processes|ray", help="Where the workers are.")
]
RuleArgument = Annotated[str, typer.Argument(metavar="RULE", help="Its name or hash, or a part.")]


def known_rules(folder: Path | None) -> tuple[Rule, ...]:
    return shipped() if folder is None else load_folder(folder)


def find_rule(name: str, folder: Path | None) -> Rule:
    """The one rule that is meant."""
    rules = known_rules(folder)
    found = [r for r in rules if r.name == name] or [
        r for r in rules if name in r.name or r.hash.startswith(name)
    ]
    check(len(found) == 1, "WH3007",
          f"{len(found) or 'no'} rules are called '{name}'", *(r.name for r in found[:8]),
          kind=UsageError)  # fmt: skip
    return found[0]


def executor_for(kind: str, workers: int) -> Executor:
    """Where work is done; results do not depend on it."""
    check(kind in ("processes", "ray"), "WH3007", f"there is no executor '{kind}'",
          hint="processes or ray", kind=UsageError)  # fmt: skip
    if kind == "ray":
        return RayCluster(workers=workers)
    return Serial() if workers == 1 else LocalProcesses(workers)


@rules_app.command("list")
def list_command(
    rules: FolderOption = None,
    core: Annotated[bool, typer.Option("--core", help="Only the minimal set.")] = False,
    json: JsonOption = False,
) -> None:
    """List the rules with their families and guards."""
    reporter = Reporter(as_json=json)
    chosen = [r for r in known_rules(rules) if r.core or not core]
    document = {
        "rules": [
            {"name": r.name, "family": family(r), "numeric": r.numeric, "core": r.core,
             "hash": r.hash, "when": list(r.when), "lhs": list(r.lhs), "rhs": list(r.rhs)}
            for r in chosen
        ]
    }  # fmt: skip

    def show() -> None:
        for r in chosen:
            guards = f"  when {', '.join(r.when)}" if r.when else ""
            reporter.text(f"{family(r):12} {r.numeric:5} {r.name}{guards}")
        reporter.text(f"{len(chosen)} rules")

    reporter.result(document, show)


@rules_app.command("show")
def show_command(rule: RuleArgument, rules: FolderOption = None) -> None:
    """Draw both sides of a rule."""
    Reporter().text(draw(find_rule(rule, rules)))


@rules_app.command("explain")
def explain_command(rule: RuleArgument, rules: FolderOption = None) -> None:
    """Say why a rule is believed."""
    from whet.superopt.verify.axioms import laws
    from whet.superopt.verify.lemmas import LEMMAS

    Reporter().text(explain(find_rule(rule, rules), {**laws(), **LEMMAS}))


@rules_app.command("verify")
def verify_command(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE]...", help="Rules to prove; by default whet's own."),
    ] = None,
    rules: FolderOption = None,
    write: WriteOption = None,
    mutants: Annotated[
        int, typer.Option(metavar="N", help="Also try N rules made false on purpose.")
    ] = 0,
    workers: WorkersOption = 1,
    executor: ExecutorOption = "processes",
    seed: SeedOption = 0,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Replay every proof, or prove the rules of a file.

    Exit code 6 if a rule is not proved.
    """
    reporter = Reporter(quiet=quiet, as_json=json)
    candidates = (
        tuple(r for path in files for r in read_candidates(path.read_text()))
        if files
        else known_rules(rules)
    )
    runner = executor_for(executor, workers)
    reports = _run_gates(candidates, seed, runner, reporter)
    proved = tuple(r.rule for r in reports if r.outcome == "proved")
    kills, escaped = ("", 0)
    if mutants:
        kills, escaped = _try_mutants(proved, mutants, seed, runner, reporter)
    if write is not None:
        write_folder(proved, write)
    document = {
        "proved": len(proved),
        "rules": [
            {"name": r.rule.name, "outcome": r.outcome, "gates": dict(r.gates),
             "counterexample": r.counterexample, "hint": r.hint,
             "added_guards": list(r.added_guards)}
            for r in reports
        ],
        "mutants": kills,
    }  # fmt: skip

    def show() -> None:
        for r in reports:
            _show_report(r, reporter)
        reporter.text(f"{len(proved)} of {len(reports)} rules proved")
        if kills:
            reporter.text(f"mutants: {kills}")

    reporter.result(document, show)
    check(not escaped, "WH4001", f"{escaped} false rules got through", kind=MismatchError)
    if len(proved) < len(reports):
        fail("WH4001", f"{len(reports) - len(proved)} rules are not proved", kind=MismatchError)


def _run_gates(
    candidates: tuple[Rule, ...], seed: int, executor: Executor, reporter: Reporter
) -> tuple[Report, ...]:
    # The gates bring z3, which listing and using rules must not need.
    from whet.superopt.verify.gates import verify_all

    with reporter.steps("rules", len(candidates)) as done:
        return verify_all(candidates, seed, executor, lambda *_: done(), batch=1)


def _try_mutants(
    rules: tuple[Rule, ...], wanted: int, seed: int, executor: Executor, reporter: Reporter
) -> tuple[str, int]:
    """How many false rules each gate notices, and how many got through."""
    from whet.superopt.verify.mutants import judge_mutants, summary

    check(bool(rules), "WH3007", "there are no proved rules to make mutants of", kind=UsageError)
    tasks = [(rule, seed, -(-wanted // len(rules))) for rule in rules]
    with reporter.steps("mutants of rules", len(rules)) as done:
        found = executor.map(judge_mutants, tasks, progress=lambda *_: done())
    kills = [k for one in found for k in one]
    for k in kills:
        if k.passed:
            reporter.note(f"passed: {k.mutant.rule.name}, {k.mutant.change}, {k.mutant.witness}")
    return summary(kills), sum(k.passed for k in kills)


def _show_report(report: Report, reporter: Reporter) -> None:
    guards = f"  with {', '.join(report.added_guards)}" if report.added_guards else ""
    reporter.text(f"{report.outcome:8} {report.rule.name}{guards}")
    if report.outcome != "proved":
        for gate, answer in report.gates:
            reporter.text(f"    {gate}: {answer}")
        for label, text in (("counterexample", report.counterexample), ("hint", report.hint)):
            if text:
                reporter.text(f"    {label}: {text}")


@rules_app.command("generate")
def generate_command(
    size: Annotated[int, typer.Option(metavar="N", help="Operators per side.")] = 3,
    pool: Annotated[
        list[str] | None, typer.Option("--pool", metavar="NAME", help="Inputs to start from.")
    ] = None,
    write: WriteOption = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Keep and reuse finished parts there.")
    ] = None,
    workers: WorkersOption = 1,
    executor: ExecutorOption = "processes",
    seed: SeedOption = 0,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Find all rules up to a size, prove them and store them."""
    from whet.superopt.generate.pools import POOLS
    from whet.superopt.prune.candidates import find_candidates
    from whet.superopt.verify.gates import verify_forms

    reporter = Reporter(quiet=quiet, as_json=json)
    for name in pool or ():
        check(name in POOLS, "WH3007", f"there is no pool '{name}'", hint=", ".join(POOLS),
              kind=UsageError)  # fmt: skip
    chosen = [POOLS[name] for name in pool or ["ten"]]
    runner = executor_for(executor, workers)
    with reporter.working("enumerating graphs"):
        found = find_candidates(chosen, size, seed=seed, executor=runner, folder=resume)
    forms = tuple(
        tuple(dataclasses.replace(f, core=c.in_core) for f in c.forms) for c in found.candidates
    )
    with reporter.steps("rules", len(forms)) as done:
        reports = verify_forms(forms, seed, runner, lambda *_: done(), batch=1)
    proved = tuple(r.rule for r in reports if r.outcome == "proved")
    if write is not None:
        write_folder(proved, write)
    outcomes = {o: sum(r.outcome == o for r in reports)
                for o in ("proved", "refuted", "unproved", "alarm")}  # fmt: skip
    document = {"funnel": [dataclasses.asdict(row) for row in found.funnel], "outcomes": outcomes}

    def show() -> None:
        for r in reports:
            if r.outcome in ("unproved", "alarm"):
                _show_report(r, reporter)
        reporter.text(", ".join(f"{n} {o}" for o, n in outcomes.items()))

    reporter.result(document, show)


@rules_app.command("stats")
def stats_command(
    rules: FolderOption = None,
    size: Annotated[
        int, typer.Option(metavar="N", help="Also enumerate graphs up to this size.")
    ] = 0,
    pool: Annotated[str, typer.Option(metavar="NAME", help="Inputs to start from.")] = "ten",
    seed: SeedOption = 0,
    json: JsonOption = False,
) -> None:
    """Count the rules by family, and how many of all graphs each step of pruning leaves."""
    reporter = Reporter(as_json=json)
    chosen = known_rules(rules)
    families = sorted({family(r) for r in chosen})
    counts = {f: sum(family(r) == f for r in chosen) for f in families}
    rows: list[dict[str, int]] = []
    if size:
        from whet.superopt.generate.pools import POOLS
        from whet.superopt.prune.candidates import find_candidates

        check(pool in POOLS, "WH3007", f"there is no pool '{pool}'", hint=", ".join(POOLS),
              kind=UsageError)  # fmt: skip
        found = find_candidates([POOLS[pool]], size, seed=seed)
        rows = [dataclasses.asdict(row) for row in found.funnel]
    total = {"all": len(chosen), "core": sum(r.core for r in chosen),
             "exact": sum(r.numeric == "exact" for r in chosen)}  # fmt: skip

    def show() -> None:
        for name, count in counts.items():
            reporter.text(f"{name:14}{count:6}")
        reporter.text("  ".join(f"{k} {v}" for k, v in total.items()))
        if rows:
            reporter.text("  ".join(f"{key:>10}" for key in rows[0]))
            for row in rows:
                reporter.text("  ".join(f"{value:>10,}" for value in row.values()))
            reporter.text("TASO, size 4:  28,744 candidates, 17,346 after renaming, 743 rules")

    reporter.result({"families": counts, **total, "funnel": rows}, show)
