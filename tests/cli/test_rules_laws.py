"""whet rules laws: what is stored, what is an error, and an interrupt in the middle."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("z3")

from tests.cli.conftest import Result
from tests.superopt.test_lawbook import FIRST, SMALL
from whet.ops.base import Law
from whet.superopt.verify import lawbook
from whet.superopt.verify.lawbook import read_book
from whet.superopt.verify.theory import Checked, check_law

Whet = Callable[..., Result]


@pytest.fixture
def small_laws(monkeypatch: pytest.MonkeyPatch) -> dict[str, Law]:
    known = dict(SMALL)
    monkeypatch.setattr("whet.superopt.verify.axioms.laws", lambda: known)
    return known


def test_the_command_stores_and_reads(whet: Whet, small_laws: object, tmp_path: Path) -> None:
    file = tmp_path / "laws.txt"
    done = whet("rules", "laws", "--write", file, "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert [entry["name"] for entry in document["laws"]] == list(SMALL)
    assert document["laws"][3]["contradiction"]["outcome"] == "undecided"
    text = file.read_text()
    assert read_book(text, SMALL).keys() == SMALL.keys()
    assert whet("rules", "laws", "--write", file, "--json").stdout == done.stdout
    assert file.read_text() == text


def test_a_contradiction_is_an_error(whet: Whet, small_laws: dict[str, Law]) -> None:
    small_laws["planted"] = FIRST
    done = whet("rules", "laws")
    assert done.returncode == 6
    assert "contradiction: " in done.stdout
    assert "laws contradict others" in done.stderr


def test_an_interrupt_loses_nothing(
    whet: Whet, small_laws: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def check(name: str, known: dict[str, Law]) -> Checked:
        asked.append(name)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return check_law(name, known)

    monkeypatch.setattr(lawbook, "check_law", check)
    file = tmp_path / "laws.txt"
    done = whet("rules", "laws", "--write", file)
    assert done.returncode == 130
    assert f"interrupted after 2 of 4 laws; they are in {file}" in done.stderr
    assert "contradictions: " in done.stdout
    assert whet("rules", "laws", "--write", file).returncode == 0
    assert asked == ["commutes", "associates", "twice", "twice", "positive"]
