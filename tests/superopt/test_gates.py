"""True rules are proved, false ones are refuted, and disagreement is an alarm."""

from __future__ import annotations

from pathlib import Path

import pytest

from whet.graph.terms import read_term
from whet.ops.base import Law, law
from whet.superopt.rules.files import read_candidates
from whet.superopt.rules.rule import Rule, Variable
from whet.superopt.verify.axioms import examine, laws
from whet.superopt.verify.bounded import check_bounded
from whet.superopt.verify.claims import Claim
from whet.superopt.verify.gates import claim, shared_prover, verify, verify_as_stated
from whet.superopt.verify.identity import check_identity
from whet.superopt.verify.prover import Prover
from whet.superopt.verify.theory import Finding, contradiction, redundancy

ANY = "strides=s, pads=p, dilations=d"
CASES = read_candidates((Path(__file__).parent / "case_studies.rules").read_text())


def variables(**ranks: int) -> tuple[Variable, ...]:
    return tuple(Variable(name, rank) for name, rank in ranks.items())


@pytest.fixture(scope="module")
def prover() -> Prover:
    return shared_prover()


@pytest.mark.parametrize("rule", CASES, ids=lambda r: r.name)
def test_case_studies_are_proved(rule: Rule, prover: Prover) -> None:
    report = verify_as_stated(rule, prover)
    assert report.outcome == "proved", report
    certificate = report.rule.certificate
    assert certificate is not None
    assert len(certificate.shapes) >= 16
    assert certificate.solver.startswith("z3 ")


def test_data_movement_is_exact_and_regrouped_sums_are_not(prover: Prover) -> None:
    by_name = {r.name: verify_as_stated(r, prover).rule.numeric for r in CASES[:8]}
    assert by_name["conv-share-input"] == "exact"
    assert by_name["qkv"] == "exact"
    assert by_name["rnn"] == "real"


# ---------------------------------------------------------------------------------- planted bugs
GROUPED_MERGE = Rule(
    "grouped-merge",
    variables(x=4, w=4, v=4),
    (f"concat(conv(x, w, {ANY}, groups=g), conv(x, v, {ANY}, groups=g), axis=1)",),
    (f"conv(x, concat(w, v, axis=0), {ANY}, groups=g)",),
)
GROUPED_SUM = Rule(
    "grouped-sum",
    variables(x=4, w=4, z=4, v=4),
    (f"add(conv(x, w, {ANY}, groups=g), conv(z, v, {ANY}, groups=g))",),
    (f"conv(concat(x, z, axis=1), concat(w, v, axis=1), {ANY}, groups=g)",),
)
# Unequal numbers of filters: the middle of the groups is not where the images were joined.
HALF = "(dim(w, 2) - 1) // 2, (dim(w, 3) - 1) // 2"
SAME = f"strides=[1, 1], pads=[{HALF}, {HALF}], dilations=[1, 1]"
SIDE_BY_SIDE = Rule(
    "side-by-side",
    variables(x=4, y=4, w=4, v=4),
    (f"concat(conv(x, w, {SAME}, groups=g), conv(y, v, {SAME}, groups=g), axis=1)",),
    (f"conv(concat(x, y, axis=1), concat(w, v, axis=0), {SAME}, groups=2 * g)",),
)
# SAME_UPPER at stride 2 and even extents pads only at the end, for both kernels alike.
STRIDED_ENLARGE = Rule(
    "strided-enlarge",
    variables(x=4, w=4),
    ("conv(x, w, strides=[2, 2], pads=[0, 0, 0, 0], dilations=[1, 1], groups=1)",),
    ("conv(x, enlarge(w, kernel=[3, 3]), strides=[2, 2], pads=[0, 0, 1, 1], dilations=[1, 1], "
     "groups=1)",),
    ("dim(w, 2) == 1", "dim(w, 3) == 1"),
)  # fmt: skip
DROPPED_OPERAND = Rule(
    "dropped-operand",
    variables(x=4, w=4, y=4),
    (f"mul(conv(x, w, {ANY}, groups=g), y)",),
    (f"conv(x, w, {ANY}, groups=g)",),
)
# True if relu(x) were x * (x + 1) + 1.
POLYNOMIAL_RELU = Rule(
    "polynomial-relu",
    variables(x=2),
    ("add(x, relu(x))",),
    ("mul(add(x, 1), add(x, 1))",),
)


# Types demand only that the sums of the parts agree, not the parts.
MISALIGNED_PARTS = Rule(
    "misaligned-parts",
    (Variable("x", 2), Variable("y", 2), Variable("w", 2, "weight"), Variable("v", 2, "weight")),
    ("matmul(concat(x, y, axis=1), concat(w, v, axis=0))",),
    ("matmul(concat(y, x, axis=1), concat(v, w, axis=0))",),
)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("guards", [(), ("shape(x) == shape(y)",), ("dim(w, 0) == dim(w, 1)",)])
def test_parts_of_equal_sums_are_moved_against_each_other(
    guards: tuple[str, ...], seed: int, prover: Prover
) -> None:
    tested = claim(MISALIGNED_PARTS.guarded(*guards))
    numeric = check_identity(tested, seed)
    assert numeric.counterexample is not None
    assert check_bounded(tested, seed).counterexample is not None
    assert not prover.prove(tested, numeric.at).proved


@pytest.mark.parametrize("seed", range(2))
def test_the_guard_that_aligns_parts_does_not_depend_on_the_seed(seed: int, prover: Prover) -> None:
    report = verify(MISALIGNED_PARTS, prover, seed)
    assert report.outcome == "proved"
    assert report.added_guards == ("dim(x, 1) == dim(w, 0)",)


@pytest.mark.parametrize("seed", range(3))
def test_averages_over_nothing_do_not_stop_the_gates(seed: int, prover: Prover) -> None:
    pool = "kernel=k, strides=s, pads=p, dilations=d, ceil_mode=false, count_include_pad=false"
    rule = Rule("scaled-average", (Variable("x", 4), Variable("a", 0)),
                (f"mul(avg_pool(x, {pool}), a)",), (f"avg_pool(mul(x, a), {pool})",))  # fmt: skip
    assert verify_as_stated(rule, prover, seed).outcome == "proved"


@pytest.mark.parametrize(
    "rule",
    [GROUPED_MERGE, GROUPED_SUM, STRIDED_ENLARGE, DROPPED_OPERAND, POLYNOMIAL_RELU],
    ids=lambda r: r.name,
)
def test_planted_bugs_are_refuted_by_every_gate(rule: Rule, prover: Prover) -> None:
    numeric = check_identity(claim(rule), 0)
    assert numeric.counterexample is not None
    assert not check_bounded(claim(rule), 0).passed
    assert not prover.prove(claim(rule), numeric.at).proved


def test_a_guard_is_found_for_the_grouped_merge(prover: Prover) -> None:
    report = verify(GROUPED_MERGE, prover)
    assert report.outcome == "proved"
    assert report.added_guards == ("g == 1",)
    assert report.rule.when == ("g == 1",)


@pytest.mark.parametrize("seed", range(6))
def test_filters_side_by_side_must_be_as_many(seed: int) -> None:
    """Few shapes fit both sides with unequal filters: they are found by challenging equality."""
    wrong = check_identity(claim(SIDE_BY_SIDE), seed).counterexample
    assert wrong is not None
    shapes = dict(wrong.at.shapes)
    assert shapes["w"] != shapes["v"]


def test_a_guard_is_found_for_filters_side_by_side(prover: Prover) -> None:
    report = verify(SIDE_BY_SIDE, prover)
    assert report.outcome == "proved"
    assert report.added_guards == ("shape(w) == shape(v)",)


def test_the_exact_shapes_of_the_known_counterexample() -> None:
    left = read_term(GROUPED_MERGE.lhs[0])
    right = read_term(GROUPED_MERGE.rhs[0])
    guards = Rule("", (), (), (), ("shape(x) == [2, 4, 5, 3]", "g == 2", "s == [1, 1]")).guards
    tested = Claim((("x", 4), ("w", 4), ("v", 4)), (left,), (right,), guards)
    assert check_identity(tested, 0).counterexample is not None


# ------------------------------------------------------------------------------------- the laws
FALSE_MERGE = law(
    f"concat(conv(x, w, {ANY}, groups=g), conv(x, v, {ANY}, groups=g), axis=1) = "
    f"conv(x, concat(w, v, axis=0), {ANY}, groups=g)", "exact",
    x=(2, 3, 4, 5), w=(4, 3, 3, 3), v=(2, 3, 3, 3), s=(1, 1), p=(0, 0, 0, 0), d=(1, 1), g=1,
)  # fmt: skip


def test_a_false_law_is_noticed_before_it_is_used() -> None:
    found = examine("conv.false", FALSE_MERGE)
    assert not found.axioms
    assert found.counterexample is not None


def test_a_false_law_that_slipped_in_raises_the_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    from whet.graph.laws import read_law
    from whet.superopt.verify import prover as proving
    from whet.superopt.verify.assign import assignments
    from whet.superopt.verify.axioms import Axiom, axioms_of, claim_of

    def trusting(name: str, stated: Law) -> tuple[Axiom, ...]:
        if stated is not FALSE_MERGE:
            return axioms_of(name, stated)
        read = read_law(stated)
        own = tuple((n, len(s)) for n, s in read.shapes.items())
        return (Axiom(name, read, own, assignments(claim_of(read, own), 12, 0)),)

    monkeypatch.setattr(proving, "axioms_of", trusting)
    deceived = Prover({**laws(), "conv.false": FALSE_MERGE})
    report = verify_as_stated(GROUPED_MERGE, deceived)
    assert report.outcome == "alarm"
    assert "g=" in report.counterexample
    assert dict(report.gates)["prover"] == "proved"


def test_size_free_splits_with_associative_concat_are_contradictory() -> None:
    # The laws about two parts; all others about concat and split are in no danger from these.
    joined = {
        name: w
        for name, w in laws().items()
        if w.text.startswith(("concat(concat(a, b, axis=k), c", "split(concat(x, y, axis=k)"))
    }
    assert len(joined) == 3
    halves = {
        f"half.{n}": law(
            f"split(concat(x, y, axis=k), axis=k, sizes=z)[{n}] = {part}", "exact",
            x=(2, 3), y=(2, 3), k=0, z=(2, 2))
        for n, part in enumerate("xy")
    }  # fmt: skip
    assert all(contradiction(name, joined).outcome != "found" for name in joined)
    found = contradiction("half.0", {**joined, **halves})
    assert found.outcome == "found"
    assert set(halves) <= set(found.laws)
    assert any(
        laws()[n].text.startswith("concat(concat(a, b, axis=k), c") for n in found.laws
        if n in laws()
    )  # fmt: skip


def test_a_law_that_follows_from_others_is_redundant() -> None:
    x, y, z = (2, 3), (2, 3), (2, 3)
    known = {
        "commutes": law("add(x, y) = add(y, x)", "exact", x=x, y=y),
        "associates": law("add(add(x, y), z) = add(x, add(y, z))", "real", x=x, y=y, z=z),
        "turned": law("add(add(x, y), z) = add(z, add(y, x))", "real", x=x, y=y, z=z),
        "twice": law("relu(relu(x)) = relu(x)", "exact", x=x),
    }
    turned = redundancy("turned", known)
    assert turned == Finding("found", ("commutes",))
    assert all(redundancy(n, known).outcome != "found" for n in ("twice", "commutes"))


def test_an_unproved_rule_says_what_is_missing(prover: Prover) -> None:
    rule = Rule("unknown", variables(x=2), ("relu(mul(x, 4))",), ("mul(relu(x), 4)",))
    report = verify_as_stated(rule, prover)
    assert report.outcome == "unproved"
    assert report.rule.certificate is None
    assert "relu(mul(x, 4))" in report.hint or "cannot tell" in report.hint


def test_a_rule_whose_sides_do_not_determine_each_other_is_refused(prover: Prover) -> None:
    rule = Rule(
        "free",
        variables(x=2, y=2, z=2),
        ("split(concat(x, y, axis=0), axis=0, sizes=[dim(x, 0), dim(y, 0)])[0]",),
        ("split(concat(x, z, axis=0), axis=0, sizes=[dim(x, 0), dim(z, 0)])[0]",),
    )
    report = verify_as_stated(rule, prover)
    assert report.outcome == "refuted"
    assert report.gates[0][0] == "form"


def test_the_same_seed_gives_the_same_certificate(prover: Prover) -> None:
    rule = CASES[0]
    assert verify_as_stated(rule, prover, 3).rule == verify_as_stated(rule, prover, 3).rule
    other = verify_as_stated(rule, prover, 4).rule
    assert other.hash == rule.hash
    assert other.certificate != verify_as_stated(rule, prover, 3).rule.certificate
