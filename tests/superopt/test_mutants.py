"""A sample of rules made false on purpose: no gate may be fooled."""

from __future__ import annotations

from pathlib import Path

import pytest

from whet.core.executor import Serial
from whet.superopt.rules.files import read_candidates
from whet.superopt.rules.rule import Rule, Variable
from whet.superopt.verify.gates import shared_prover
from whet.superopt.verify.mutants import (
    Kills,
    Mutant,
    falsity,
    find_and_judge,
    judge,
    mutants,
    tally,
)

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


def test_a_difference_of_types_alone_is_no_falsity() -> None:
    wider = Rule("wider", (Variable("x", 2),), ("concat(x, x, axis=1)",), ("relu(x)",))
    assert falsity(wider, 0, shapes=20) is None


def test_enough_mutants_are_made_by_changing_two_things() -> None:
    found = list(mutants(CASES["relu-concat"], seed=0, limit=60))
    assert len(found) == 60
    assert len({(m.rule.lhs, m.rule.rhs) for m in found}) == 60
    assert any(";" in m.change for m in found)


def test_rules_with_few_variants_are_made_up_for() -> None:
    rules = [CASES["relu-concat"], CASES["mm-assoc"]]
    found = find_and_judge(rules, 13, 0, Serial())
    assert len(found) >= 13
    assert {k.mutant.rule.name for k in found} == {r.name for r in rules}


def test_the_table_counts_by_gate_and_change() -> None:
    rule = CASES["mm-assoc"]
    swapped = Mutant(rule, "lhs: operands of matmul swapped", "x=[2,3]")
    other = Mutant(rule, "rhs: add becomes mul", "x=[2,3]")
    rows = tally([Kills(swapped, True, False, True), Kills(other, False, False, False)])
    assert rows == [
        ["operands swapped", "1", "1", "0", "1", "0"],
        ["operator", "1", "0", "0", "0", "1"],
        ["all", "2", "1", "0", "1", "1"],
    ]
