"""The book of laws: what is known of them as a whole, as a file.

    state 1f0c...                                  of all laws: another state is another book
    solver z3 4.15.4

    law abs.75a0106b
      # abs(x) = maximum(x, neg(x))
      contradiction none
      redundancy undecided the solver's limit

Entries are added one by one, so that an interrupted check goes on where it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import get_args

from whet.core.digest import digest_text
from whet.ops.base import Law
from whet.superopt.verify.axioms import digest
from whet.superopt.verify.solver import SOLVER
from whet.superopt.verify.theory import Checked, Finding, Outcome, check_law

RECORD = "laws.txt"
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)

Book = dict[str, Checked]


def state_of(known: Mapping[str, Law]) -> str:
    """A digest of all laws."""
    return digest_text(*(f"{name} {digest(law)}" for name, law in sorted(known.items())))


def shipped_book() -> str:
    """The text of the package's own book."""
    source = resources.files("whet.superopt.verify").joinpath(RECORD)
    return source.read_text() if source.is_file() else ""


def read_book(text: str, known: Mapping[str, Law]) -> Book:
    """The entries of the text about these laws: none if it is about others."""
    if f"state {state_of(known)}" not in text.splitlines():
        return {}
    found: Book = {}
    for entry in text.split("\nlaw ")[1:]:
        name, *lines = entry.splitlines()
        said = dict(line.strip().partition(" ")[::2] for line in lines if line.strip())
        if {"contradiction", "redundancy"} <= said.keys():  # the last may have been cut off
            found[name] = Checked(_finding(said["contradiction"]), _finding(said["redundancy"]))
    return found


def _finding(text: str) -> Finding:
    word, _, rest = text.partition(" ")
    (outcome,) = (o for o in OUTCOMES if o == word)
    return Finding(outcome, tuple(rest.split()) if outcome == "found" else (),
                   rest if outcome == "undecided" else "")  # fmt: skip


def _said(finding: Finding) -> str:
    return " ".join((finding.outcome, *finding.laws, finding.problem)).rstrip()


def _entry(name: str, law: Law, checked: Checked) -> str:
    return (
        f"\nlaw {name}\n  # {law.text}\n  contradiction {_said(checked.contradiction)}\n"
        f"  redundancy {_said(checked.redundancy)}\n"
    )


def check_laws(
    known: Mapping[str, Law], book: Mapping[str, Checked], file: Path | None
) -> Iterator[tuple[str, Checked]]:
    """Every law with what is found out about it; what the book says already comes first.

    With a file, the entry of a law is in it before the next law is looked at.
    """
    if file is not None:
        file.write_text(f"# {len(known)} laws, each against all others.\n"
                        f"state {state_of(known)}\nsolver {SOLVER}\n")  # fmt: skip
    for name in sorted(known, key=lambda n: n not in book):
        checked = book[name] if name in book else check_law(name, known)
        if file is not None:
            with file.open("a") as end:
                end.write(_entry(name, known[name], checked))
        yield name, checked
