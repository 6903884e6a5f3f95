"""The common parts of the `whet rules` commands."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whet.cli.console import Reporter
from whet.core.errors import UsageError, check
from whet.core.executor import Executor, LocalProcesses, Serial
from whet.core.module_executor import OutsideModule, WithModules
from whet.core.ray_executor import RayCluster
from whet.superopt.rules.files import load_folder, shipped
from whet.superopt.rules.rule import Rule

if TYPE_CHECKING:
    from whet.superopt.generate.pools import Pool
    from whet.superopt.verify.gates import Report

FolderOption = Annotated[
    Path | None, typer.Option("--rules", metavar="FOLDER", help="Rules other than whet's own.")
]
WriteOption = Annotated[
    Path | None, typer.Option("--write", metavar="FOLDER", help="Store the proved rules there.")
]
WorkersOption = Annotated[
    int,
    typer.Option(
        "--workers", metavar="N", min=0, help="Worker processes; 0 means one per processor."
    ),
]
ExecutorOption = Annotated[
    str,
    typer.Option(
        "--executor",
        metavar="processes|ray",
        help="Where the workers are: on this machine, or in a Ray cluster (extra `ray`).",
    ),
]
RuleArgument = Annotated[str, typer.Argument(metavar="RULE", help="Its name or hash, or a part.")]
PoolOption = Annotated[
    list[str] | None,
    typer.Option(
        "--pool",
        metavar="NAME[:N]",
        help="Inputs to start from, `ten` by default, with up to N operators per side; may be "
        "repeated. Pools: ten, twenty, groups, matrices, batches, sums, strided, biases, "
        "row_biases, token_biases, heads, volumes, transposed, windows.",
    ),
]
LettersOption = Annotated[
    list[str] | None,
    typer.Option(
        "--letters",
        metavar="NAME",
        help="Operators beyond TASO's; may be repeated: vectors, clip, heads, volumes, transposed, "
        "strided_pools, strided, same_upper, valid, reduce, broadcast, reshape, opaque, softmax, "
        "layer_norm.",
    ),
]
WithOption = Annotated[
    list[str] | None,
    typer.Option(
        "--with",
        metavar="MODULE|FILE.py",
        help="Operators of your own: a module or a file that defines them; may be repeated.",
    ),
]


def known_rules(folder: Path | None, certified: bool = False) -> tuple[Rule, ...]:
    return shipped(certified) if folder is None else load_folder(folder, certified)


def find_rule(name: str, folder: Path | None) -> Rule:
    """The one rule that is meant, with its certificate."""
    rules = known_rules(folder, certified=True)
    found = [r for r in rules if r.name == name] or [
        r for r in rules if name in r.name or r.hash.startswith(name)
    ]
    check(len(found) == 1, "WH3007",
          f"{len(found) or 'no'} rules are called '{name}'", *(r.name for r in found[:8]),
          kind=UsageError)  # fmt: skip
    return found[0]


def executor_for(kind: str, workers: int, modules: tuple[OutsideModule, ...] = ()) -> Executor:
    """The executor that does the work; results do not depend on it."""
    check(kind in ("processes", "ray"), "WH3007", f"there is no executor '{kind}'",
          hint="processes or ray", kind=UsageError)  # fmt: skip
    found: Executor
    if kind == "ray":
        found = RayCluster(workers=workers)
    else:
        found = Serial() if workers == 1 else LocalProcesses(workers)
    return WithModules(found, modules) if modules else found


def outside_modules(sources: list[str] | None) -> tuple[OutsideModule, ...]:
    return tuple(map(OutsideModule, sources or ()))


def chosen_pools(
    names: list[str] | None, letters: list[str] | None, modules: tuple[OutsideModule, ...]
) -> list[Pool]:
    """The pools of these names, with the letters that were asked for."""
    # The pools bring numba, which listing and using rules must not need.
    from whet.superopt.generate.alphabet import EXTRA
    from whet.superopt.generate.outside import outside_letters
    from whet.superopt.generate.pools import POOLS

    pools = [_pool(name, POOLS) for name in names or ["ten"]]
    for name in letters or ():
        check(name in EXTRA, "WH3007", f"there are no letters '{name}'", hint=", ".join(EXTRA),
              kind=UsageError)  # fmt: skip
    if letters:
        pools = [p.extended(*letters) for p in pools]
    for module in modules:
        found = outside_letters(module)
        pools = [p.with_letters("-".join(x.name for x in found), found) for p in pools]
    return pools


def _pool(text: str, known: Mapping[str, Pool]) -> Pool:
    """The pool that is meant: `biases`, or `biases:3` with graphs of up to three operators."""
    name, _, size = text.partition(":")
    check(name in known, "WH3007", f"there is no pool '{name}'", hint=", ".join(known),
          kind=UsageError)  # fmt: skip
    if not size:
        return known[name]
    check(size.isdecimal() and int(size) > 0, "WH3007", f"'{size}' is no number of operators",
          kind=UsageError)  # fmt: skip
    return dataclasses.replace(known[name], largest=int(size))


def show_report(report: Report, reporter: Reporter) -> None:
    guards = f"  with {', '.join(report.added_guards)}" if report.added_guards else ""
    reporter.text(f"{report.outcome:8} {report.rule.name}{guards}")
    if report.outcome != "proved":
        for gate, answer in report.gates:
            reporter.text(f"    {gate}: {answer}")
        for label, text in (("counterexample", report.counterexample), ("hint", report.hint)):
            if text:
                reporter.text(f"    {label}: {text}")
