"""No rule is proved because the shapes that were drawn happened to agree."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.check_rules import check_rule
from whet.superopt.rules.files import read_candidates, shipped
from whet.superopt.rules.rule import Rule, Variable
from whet.superopt.verify import gates
from whet.superopt.verify.assign import Stream, fits
from whet.superopt.verify.bounded import check_bounded
from whet.superopt.verify.claims import read_assignment
from whet.superopt.verify.demands import violations
from whet.superopt.verify.gates import claim, shared_prover, verify, verify_as_stated
from whet.superopt.verify.identity import check_identity
from whet.superopt.verify.outer import arguments
from whet.superopt.verify.prover import Proof, Prover
from whet.superopt.verify.repair import equal_places, repaired
from whet.superopt.verify.report import Report

HERE = Path(__file__).parent
FALSE = read_candidates((HERE / "false_groups.rules").read_text())
TRUE = read_candidates((HERE / "true_groups.rules").read_text())
SEEDS = range(10)
BY_NAME = {r.name: r for r in (*FALSE, *TRUE)}
SUM = BY_NAME["false-sum-groups-of-the-first"]


@pytest.fixture(scope="module")
def prover() -> Prover:
    return shared_prover()


# ------------------------------------------------------------------------- groups given by shapes
@pytest.mark.parametrize("rule", FALSE, ids=lambda r: r.name)
def test_what_holds_for_one_group_alone_is_never_proved(rule: Rule, prover: Prover) -> None:
    """Neither numeric gate lets it pass by chance, and no proof assumes that there is one group."""
    for seed in SEEDS:
        numeric = check_identity(claim(rule), seed)
        assert numeric.counterexample is not None, seed
        assert not check_bounded(claim(rule), seed).passed, seed
    assert not prover.prove(claim(rule), numeric.at).proved


@pytest.mark.parametrize("rule", TRUE, ids=lambda r: r.name)
def test_the_same_with_one_group_is_proved_with_every_seed(rule: Rule, prover: Prover) -> None:
    for seed in SEEDS[::3]:
        report = verify_as_stated(rule, prover, seed)
        assert report.outcome == "proved", (seed, report)


@pytest.mark.parametrize(
    ("name", "guards"),
    [
        ("false-sum-groups-of-the-first", ("dim(x, 1) == dim(w, 1)",)),
        ("false-sum-variable-and-shape", ("g == 1",)),
    ],
)
def test_the_equation_that_a_proof_needs_becomes_a_guard(
    name: str, guards: tuple[str, ...], prover: Prover
) -> None:
    report = verify(BY_NAME[name], prover, seed=1)
    assert report.outcome == "proved"
    assert report.rule.when == (*BY_NAME[name].when, *guards)


# ----------------------------------------------------------------------- what types demand
def test_equations_of_types_are_told_from_those_that_held_by_chance() -> None:
    """All shapes given here have one group; types do not demand it, but equal batches and
    images they do."""
    tested = claim(SUM)
    names = [v.name for v in SUM.variables]
    given = tuple(
        read_assignment(text, names)
        for text in (
            "x=[2,3,5,4] w=[4,3,3,2] z=[2,2,5,4] v=[4,2,3,2] s=[1,1] p=[0,0,0,0] d=[1,1]",
            "x=[3,2,4,6] w=[5,2,2,3] z=[3,4,4,6] v=[5,4,2,3] s=[1,1] p=[1,1,1,1] d=[1,1]",
        )
    )
    assert all(fits(tested, at) for at in given)
    against = violations(tested, given)
    assert against
    assert all(fits(tested, at) for at in against)
    demanded = {c for c in equal_places((*given, *against)) if len(c) > 1}
    batch, image = (("x", 0), ("z", 0)), (("x", 2), ("z", 2))
    assert {batch, image} <= demanded
    assert not any({("x", 1), ("w", 1)} <= set(c) for c in demanded)


@pytest.mark.parametrize("rule", [r for r in FALSE if "-sum-" in r.name], ids=lambda r: r.name)
def test_one_group_in_all_samples_is_not_taken_for_a_demand(rule: Rule) -> None:
    tested = claim(rule)
    for seed in range(2):
        drawn = ((at, dict(at.shapes)) for at in Stream(tested, seed).spread(16))
        given = tuple(at for at, shapes in drawn if shapes["x"][1] == shapes["w"][1])
        together = equal_places((*given, *violations(tested, given))) if given else []
        assert not any({("x", 1), ("w", 1)} <= set(c) for c in together), seed


def test_extents_of_1_may_be_broadcast() -> None:
    """x and y have one row in all samples, which types do not demand: one may have those of z."""
    tested = claim(
        Rule("sums", tuple(Variable(n, 2) for n in "xyz"), ("add(x, add(y, z))",),
             ("add(add(x, y), z)",))
    )  # fmt: skip
    given = tuple(
        read_assignment(text, "xyz")
        for text in ("x=[1,2] y=[1,2] z=[5,2]", "x=[1,3] y=[1,3] z=[4,3]")
    )
    together = equal_places((*given, *violations(tested, given)))
    assert all(len(c) == 1 for c in together)


def test_one_extent_is_changed_and_others_repaired() -> None:
    tested = claim(SUM)
    names = [v.name for v in SUM.variables]
    text = "x=[1,2,3,3] w=[2,2,1,1] z=[1,2,3,3] v=[2,2,1,1] s=[1,1] p=[0,0,0,0] d=[1,1]"
    at = read_assignment(text, names)
    found = repaired(tested, at, (("x", 1),), lambda d: 2 * d, [(("z", 1),)])
    assert found is not None
    assert dict(found.shapes) == dict(at.shapes) | {"x": (1, 4, 3, 3), "z": (1, 4, 3, 3)}


@pytest.mark.parametrize("seed", range(3))
def test_groups_are_drawn_where_shapes_give_them(seed: int) -> None:
    tested = claim(BY_NAME["true-groups-by-shape"])
    shapes = [dict(at.shapes) for at in Stream(tested, seed).spread(16)]
    assert any(s["x"][1] > s["w"][1] for s in shapes)
    assert any(s["x"][1] == s["w"][1] for s in shapes)


def test_what_rules_assume_is_demanded_at_shapes_of_other_seeds() -> None:
    """No shipped rule rests on an equation that the shapes of its certificate have by chance."""
    for rule in shipped()[::60]:
        tested = claim(rule)
        at = Stream(tested, 11).spread(12)
        kept = claim(rule.guarded(*rule.given))
        assert all(fits(kept, a) for a in (*at, *violations(tested, at))), rule.name


# ------------------------------------------------------------------------------------- seeds
def test_outcomes_that_depend_on_the_seed_are_an_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = BY_NAME["true-sum-one-group"]

    def lucky(rules: tuple[Rule, ...], seed: int, *_: object) -> tuple[Report, ...]:
        outcome = "refuted" if seed == 4 else "proved"
        wrong = "at x=[1]" if seed == 4 else ""
        return tuple(Report(r, outcome, (("prover", outcome),), wrong) for r in rules)

    monkeypatch.setattr(gates, "verify_all", lucky)
    assert gates.verify_with_seeds((rule,), range(4))[0].outcome == "proved"
    (report,) = gates.verify_with_seeds((rule,), range(5))
    assert report.outcome == "alarm"
    assert report.counterexample == "at x=[1]"
    assert "refuted with seed 4" in dict(report.gates)["seeds"]


def test_all_seeds_agree_on_a_true_rule() -> None:
    (report,) = gates.verify_with_seeds(TRUE[:1], range(3))
    assert report.outcome == "proved"


# ------------------------------------------------------------------------- operators outside
def product_of_sums(outside: str, *more: str) -> Rule:
    variables = tuple(Variable(n, 2) for n in "xyw")
    left, right = "matmul(add(x, y), w)", "add(matmul(x, w), matmul(y, w))"
    tail = "".join(f", {m}" for m in more)
    return Rule("outside", variables, (f"{outside}({left}{tail})",), (f"{outside}({right}{tail})",),
                ("shape(x) == shape(y)",))  # fmt: skip


@pytest.mark.parametrize("outside", ["relu", "leaky_relu", "elu", "gelu"])
def test_an_elementwise_operator_outside_needs_no_normal_form(outside: str, prover: Prover) -> None:
    report = verify_as_stated(product_of_sums(outside), prover)
    assert report.outcome == "proved", report


def test_arguments_are_proved_one_by_one(prover: Prover) -> None:
    """Where the steps of the solver do not suffice for the whole, they may for the parts."""
    tested = claim(product_of_sums("mul", "elu(y)"))
    (inner,) = arguments(tested)
    assert [str(t) for t in inner.left] == ["matmul(add(x, y), w)"]

    class Forgetful(Prover):
        def _proved_at(self, wanted: object, *rest: object) -> Proof:
            if wanted == tested:
                return Proof(False, problem="no proof of output 0")
            return super()._proved_at(wanted, *rest)  # type: ignore[arg-type]

    at = check_identity(tested, 0).at
    assert Forgetful(prover.laws).prove(tested, at).proved


def test_arguments_that_differ_prove_nothing(prover: Prover) -> None:
    """relu forgets negative numbers, so equal results do not need equal arguments; and unequal
    arguments do not refute: add(x, y) = add(y, x)."""
    turned = Rule("turned", (Variable("x", 2), Variable("y", 2)), ("add(x, y)",), ("add(y, x)",))
    assert len(arguments(claim(turned))) == 2
    assert verify_as_stated(turned, prover).outcome == "proved"
    wrong = Rule("wrong", (Variable("x", 2),), ("elu(add(x, x))",), ("elu(x)",))
    assert verify_as_stated(wrong, prover).outcome == "refuted"


# ---------------------------------------------------------------------------------- plain NumPy
def test_shipped_rules_hold_in_plain_numpy() -> None:
    """A sample of what tools/check_rules.py does, which shares no code with the gates."""
    checked = [check_rule(rule, 6, seed) for seed, rule in enumerate(shipped()[::16])]
    assert [c.wrong for c in checked if c.wrong] == []
    assert sum(c.shapes for c in checked) > 300
    assert sum(c.grouped for c in checked) > 30


@pytest.mark.parametrize("name", ["false-sum-groups-of-the-first", "false-sum-depthwise"])
def test_false_rules_fail_in_plain_numpy(name: str) -> None:
    assert check_rule(BY_NAME[name], 40, 0).wrong
