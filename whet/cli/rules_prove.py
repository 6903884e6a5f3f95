"""whet rules verify and mutants: the gates."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whet.cli.arguments import JsonOption, QuietOption, SeedOption
from whet.cli.console import Reporter
from whet.cli.rules_common import (
    ExecutorOption,
    FolderOption,
    WithOption,
    WorkersOption,
    WriteOption,
    executor_for,
    known_rules,
    outside_modules,
    show_report,
)
from whet.core.errors import MismatchError, UsageError, check, fail
from whet.core.executor import Executor
from whet.superopt.rules.files import read_candidates
from whet.superopt.rules.rule import Rule
from whet.superopt.rules.store import write_folder

if TYPE_CHECKING:
    from whet.superopt.verify.gates import Report


def verify_command(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE]...", help="Rules to prove; by default whet's own."),
    ] = None,
    rules: FolderOption = None,
    outside: WithOption = None,
    write: WriteOption = None,
    workers: WorkersOption = 1,
    executor: ExecutorOption = "processes",
    seed: SeedOption = 0,
    seeds: Annotated[
        int,
        typer.Option(
            metavar="N", min=1, help="How many seeds to try; other outcomes are an alarm."
        ),
    ] = 1,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Replay every proof, or prove the rules of a file.

    With `--seeds N` every rule goes through the gates N times, at other shapes each time, and one
    whose outcome is not always the same is an alarm. Exit code 6 if a rule is not proved.
    """
    reporter = Reporter(quiet=quiet, as_json=json)
    modules = outside_modules(outside)
    for module in modules:
        module.load()
    candidates = (
        tuple(r for path in files for r in read_candidates(path.read_text()))
        if files
        else known_rules(rules, certified=True)
    )
    chosen = executor_for(executor, workers, modules)
    reports = _run_gates(candidates, range(seed, seed + seeds), chosen, reporter)
    proved = tuple(r.rule for r in reports if r.outcome == "proved")
    if write is not None:
        write_folder(proved, write)
    proving = sum(r.proving for r in reports)
    document = {
        "proved": len(proved),
        "proving_seconds": round(proving, 3),
        "rules": [
            {"name": r.rule.name, "outcome": r.outcome, "gates": dict(r.gates),
             "counterexample": r.counterexample, "hint": r.hint,
             "added_guards": list(r.added_guards)}
            for r in reports
        ],
    }  # fmt: skip

    def show() -> None:
        for r in reports:
            show_report(r, reporter)
        took = f"the prover took {proving:.1f} s of processor time"
        reporter.text(f"{len(proved)} of {len(reports)} rules proved; {took}")

    reporter.result(document, show)
    if len(proved) < len(reports):
        fail("WH4001", f"{len(reports) - len(proved)} rules are not proved", kind=MismatchError)


def _run_gates(
    candidates: tuple[Rule, ...], seeds: Sequence[int], executor: Executor, reporter: Reporter
) -> tuple[Report, ...]:
    # The gates bring z3, which listing and using rules must not need.
    from whet.superopt.verify.gates import verify_with_seeds

    with reporter.stages() as begin:
        return verify_with_seeds(candidates, seeds, executor, begin("proofs"), batch=1)


def mutants_command(
    count: Annotated[
        int, typer.Option(metavar="N", min=1, help="How many false rules to try, at least.")
    ] = 1000,
    rules: FolderOption = None,
    workers: WorkersOption = 1,
    executor: ExecutorOption = "processes",
    seed: SeedOption = 0,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Make rules false on purpose and see which gate notices.

    Every mutant is false beyond doubt: the operators' NumPy meaning gives different numbers for
    its sides. Exit code 6 if one passes all gates.
    """
    from whet.superopt.verify.mutants import GATES, find_and_judge, tally

    reporter = Reporter(quiet=quiet, as_json=json)
    chosen = known_rules(rules)
    check(bool(chosen), "WH3007", "there are no rules to make mutants of", kind=UsageError)
    with reporter.stages() as begin:
        found = find_and_judge(
            chosen, count, seed, executor_for(executor, workers), begin("rules made false")
        )
    escaped = [k for k in found if k.passed]
    document = {
        "mutants": len(found),
        "kills": {gate: sum(getattr(k, gate) for k in found) for gate in GATES},
        "passed": [
            {"rule": k.mutant.rule.name, "change": k.mutant.change, "witness": k.mutant.witness}
            for k in escaped
        ],
    }

    def show() -> None:
        reporter.table(("change", "mutants", *GATES, "passed all"), tally(found))
        for k in escaped:
            mutant = k.mutant
            reporter.text(f"passed: {mutant.rule.name}, {mutant.change}, {mutant.witness}")

    reporter.result(document, show)
    check(not escaped, "WH4001", f"{len(escaped)} false rules got through", kind=MismatchError)
