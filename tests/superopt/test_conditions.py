"""Where a rule may be used: nothing rests on the shapes that its proof happened to see."""

from __future__ import annotations

import dataclasses

from whet.superopt.rules.drawing import explain
from whet.superopt.rules.files import shipped
from whet.superopt.rules.rule import Certificate, Rule, Variable
from whet.superopt.verify.assign import assignments, fits
from whet.superopt.verify.claims import Claim, read_assignment
from whet.superopt.verify.conditions import assumed
from whet.superopt.verify.gates import claim
from whet.superopt.verify.identity import check_identity

JOINED = Rule(
    "joined-products",
    tuple(Variable(n, 2) for n in "xywv"),
    lhs=("matmul(concat(x, y, axis=1), concat(w, v, axis=0))",),
    rhs=("add(matmul(x, w), matmul(y, v))",),
)
"""True where x has as many columns as w has rows; where only the sums agree, the right side has
no type."""
SWAPPED = Rule(
    "swapped-products",
    tuple(Variable(n, 2) for n in "xyw"),
    lhs=("matmul(concat(x, y, axis=0), w)",),
    rhs=("matmul(concat(y, x, axis=0), w)",),
)


def certified(rule: Rule, *shapes: str) -> Rule:
    return rule.proved(Certificate((), "none", 2, 0, shapes, ()))


def conditional(rule: Rule) -> Claim:
    """What the proof of the rule says: nothing where its equations do not hold."""
    return claim(rule.guarded(*assumed(rule)))


def test_equations_of_the_certificate_are_conditions() -> None:
    rule = certified(JOINED, "x=[2,3] y=[2,5] w=[3,7] v=[5,7]", "x=[1,4] y=[1,2] w=[4,6] v=[2,6]")
    assert assumed(rule) == (
        "dim(x, 0) == dim(y, 0)",
        "dim(x, 1) == dim(w, 0)",
        "dim(y, 1) == dim(v, 0)",
        "dim(w, 1) == dim(v, 1)",
    )
    given = dataclasses.replace(rule, given=assumed(rule))
    assert "dim(y, 1) == dim(v, 0)" in explain(given, {})
    assert list(map(str, given.conditions)) == list(assumed(rule))


def test_shipped_rules_say_what_their_proofs_take_from_types() -> None:
    for rule in shipped(certified=True)[::15]:
        assert rule.given == assumed(rule), rule.name
        assert len(rule.conditions) == len(rule.when) + len(rule.given)


def test_a_rule_that_held_by_chance_is_not_used_elsewhere() -> None:
    """Where x and y are alike a false rule seems true; its conditions keep it there."""
    rule = certified(SWAPPED, "x=[2,3] y=[2,3] w=[3,4]", "x=[5,2] y=[5,2] w=[2,7]")
    elsewhere = read_assignment("x=[2,3] y=[4,3] w=[3,4]", "xyw")
    assert not fits(conditional(rule), elsewhere)
    assert fits(conditional(rule), read_assignment("x=[3,3] y=[3,3] w=[3,4]", "xyw"))


def test_shipped_rules_hold_wherever_their_conditions_do() -> None:
    """At shapes that no gate has seen."""
    for rule in shipped(certified=True)[::45]:
        found = check_identity(conditional(rule), seed=3)
        assert found.counterexample is None, rule.name


def test_the_equations_are_those_that_types_demand() -> None:
    """At other shapes that have types the conditions hold too: rules are not narrower than said."""
    narrow = [
        rule.name
        for rule in shipped(certified=True)[::45]
        if not all(fits(conditional(rule), at) for at in assignments(claim(rule), 8, seed=4))
    ]
    assert narrow == []
