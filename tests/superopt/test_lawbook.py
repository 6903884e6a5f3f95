"""The laws against each other: the stored book is current, and planted mistakes are found."""

from __future__ import annotations

import pytest

pytest.importorskip("z3")

from whet.ops.base import Law, law
from whet.superopt.verify.axioms import laws, usable
from whet.superopt.verify.lawbook import read_book, shipped_book, state_of
from whet.superopt.verify.theory import Checked, Finding, check_law

SHAPES = {"x": (2, 3), "y": (2, 3), "z": (2, 3)}
SMALL = {
    "commutes": law("add(x, y) = add(y, x)", "exact", x=(2, 3), y=(2, 3)),
    "associates": law("add(add(x, y), z) = add(x, add(y, z))", "real", **SHAPES),
    "twice": law("relu(relu(x)) = relu(x)", "exact", x=(2, 3)),
    "positive": law("log(mul(x, y)) = add(log(x), log(y))", "real", when=("x > 0", "y > 0"),
                    x=(2, 3), y=(2, 3)),
}  # fmt: skip
TURNED = law("add(add(x, y), z) = add(z, add(y, x))", "real", **SHAPES)
FIRST = law("add(x, y) = x", "exact", x=(2, 3), y=(2, 3))


def test_the_stored_book_is_that_of_the_present_laws() -> None:
    book = read_book(shipped_book(), laws())
    assert book.keys() == laws().keys(), "run whet rules laws --write whet/superopt/verify/laws.txt"


def test_no_contradiction_is_known_and_nothing_is_fine_without_an_answer() -> None:
    book = read_book(shipped_book(), laws())
    assert not [n for n, c in book.items() if c.contradiction.outcome == "found"]
    findings = [f for c in book.values() for f in (c.contradiction, c.redundancy)]
    assert all(f.problem for f in findings if f.outcome == "undecided")
    assert all(book[n].contradiction.outcome == "undecided"
               for n, w in laws().items() if not usable(w))  # fmt: skip
    assert sum(c.contradiction.outcome == "none" for c in book.values()) > len(book) // 3


@pytest.mark.parametrize("known", [laws(), SMALL], ids=["all", "few"])
def test_a_planted_contradiction_is_found(known: dict[str, Law]) -> None:
    found = check_law("planted", {**known, "planted": FIRST}).contradiction
    assert found.outcome == "found"
    assert "planted" in found.laws


@pytest.mark.parametrize("known", [laws(), SMALL], ids=["all", "few"])
def test_a_planted_law_that_follows_from_others_is_found(known: dict[str, Law]) -> None:
    found = check_law("planted", {**known, "planted": TURNED})
    assert found.contradiction.outcome != "found"
    assert found.redundancy.outcome == "found"
    assert len(found.redundancy.laws) == 1  # that add commutes


def test_what_speaks_of_elements_is_undecided() -> None:
    silent = Finding("undecided", (), "it speaks of elements")
    assert check_law("positive", SMALL) == Checked(silent, silent)


def test_a_book_about_other_laws_says_nothing() -> None:
    assert state_of(SMALL) != state_of({**SMALL, "planted": TURNED})
    assert not read_book(shipped_book(), SMALL)
