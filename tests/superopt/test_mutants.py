"""A sample of rules made false on purpose: no gate may be fooled."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("z3")

from whet.superopt.rules.files import read_candidates
from whet.superopt.rules.rule import Rule, Variable
from whet.superopt.verify.gates import shared_prover
from whet.superopt.verify.mutants import Kills, falsity, judge, mutants, summary

CASES = {
    r.name: r for r in read_candidates((Path(__file__).parent / "case_studies.rules").read_text())
}


@pytest.mark.parametrize("name", ["mm-merge", "rnn", "relu-concat", "regroup"])
def test_no_mutant_passes(name: str) -> None:
    found = list(mutants(CASES[name], seed=1, limit=5))
    assert len(found) == 5
    kills = [judge(m, shared_prover()) for m in found]
    assert not [k.mutant for k in kills if k.passed]
    assert all(k.identity for k in kills)


def test_true_variants_are_no_mutants() -> None:
    swapped = Rule("commuted", (Variable("x", 2), Variable("y", 2)), ("add(x, y)",), ("add(y, x)",))
    assert falsity(swapped, 0, shapes=20) is None


def test_the_summary_counts_by_gate() -> None:
    (mutant,) = mutants(CASES["mm-assoc"], seed=0, limit=1)
    text = summary([Kills(mutant, True, False, True), Kills(mutant, False, False, False)])
    assert text == "prover 1/2, identity 0/2, bounded 1/2; passed all gates: 1"
