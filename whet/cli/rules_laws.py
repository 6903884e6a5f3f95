"""whet rules laws: the operators' laws against each other."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whet.cli.arguments import JsonOption, QuietOption
from whet.cli.console import Reporter
from whet.cli.interrupts import heard
from whet.cli.rules_common import WithOption, outside_modules
from whet.core.errors import MismatchError, check
from whet.ops.base import Law

if TYPE_CHECKING:
    from whet.superopt.verify.lawbook import Book
    from whet.superopt.verify.theory import Finding


def laws_command(
    write: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Store what is found there, law by law, and go on from what is."
        ),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Check also what is known already.")
    ] = False,
    outside: WithOption = None,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Look for contradictions between the operators' laws, and for laws that follow from others.

    What comes with whet is shown at once; it takes some minutes to find out again. What the prover
    cannot tell within its limit is undecided. Exit code 6 if laws contradict each other.
    """
    # The prover brings z3, which listing and using rules must not need.
    from whet.superopt.verify.axioms import laws
    from whet.superopt.verify.lawbook import check_laws, read_book, shipped_book

    reporter = Reporter(quiet=quiet, as_json=json)
    for module in outside_modules(outside):
        module.load()
    known = laws()
    book: Book = {}
    if not again:
        book = read_book(shipped_book(), known)
        if write is not None and write.exists():
            book |= read_book(write.read_text(), known)
    found: Book = {}
    try:
        with reporter.steps("laws", len(known)) as done:
            for name, checked in check_laws(known, book, write):
                found[name] = checked
                done()
    except KeyboardInterrupt:
        heard()
        _report(found, known, reporter)
        kept = "with --write FILE they are kept" if write is None else f"they are in {write}"
        reporter.note(f"interrupted after {len(found)} of {len(known)} laws; {kept}")
        raise
    _report(found, known, reporter)
    bad = sum(c.contradiction.outcome == "found" for c in found.values())
    check(not bad, "WH4001", f"{bad} laws contradict others", kind=MismatchError)


def _report(found: Book, known: dict[str, Law], reporter: Reporter) -> None:
    document = {
        "laws": [
            {"name": n, "law": known[n].text, "contradiction": _document(c.contradiction),
             "redundancy": _document(c.redundancy)}
            for n, c in found.items()
        ]
    }  # fmt: skip

    def show() -> None:
        for name, c in found.items():
            if c.contradiction.outcome == "found":
                reporter.text(f"{name}: {known[name].text}")
                reporter.text(f"    contradiction: {', '.join(c.contradiction.laws)}")
            if c.redundancy.outcome == "found":
                reporter.text(f"{name}: {known[name].text}")
                reporter.text(f"    follows from {', '.join(c.redundancy.laws) or 'nothing'}")
        for title, findings in (
            ("contradictions", [c.contradiction for c in found.values()]),
            ("laws that follow from others", [c.redundancy for c in found.values()]),
        ):
            reporter.text(f"{title}: {_counted(findings)}")

    reporter.result(document, show)


def _document(finding: Finding) -> dict[str, object]:
    return {"outcome": finding.outcome, "laws": list(finding.laws), "problem": finding.problem}


def _counted(findings: list[Finding]) -> str:
    """`3 found, 12 none, 5 undecided: the solver's limit`"""
    counts = Counter((f.outcome, f.problem) for f in findings)
    order = sorted(counts.items(), key=lambda item: item[0])
    return ", ".join(
        f"{n} {outcome}{f': {problem}' if problem else ''}" for (outcome, problem), n in order
    )
