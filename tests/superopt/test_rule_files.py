"""Rule files: the same bytes every time, and nothing unproved gets in."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from whet.core.errors import ArtifactError, GraphError
from whet.graph.terms import read_term
from whet.superopt.rules.drawing import draw
from whet.superopt.rules.files import family, load_folder, read_candidates, read_rules, shipped
from whet.superopt.rules.reading import read_shared
from whet.superopt.rules.rule import Certificate, Rule, Variable
from whet.superopt.rules.store import write_folder, write_rules

CERTIFICATE = Certificate(
    axioms=("matmul.0",), solver="z3 5.4.0", prime=2**31 - 1, seed=0,
    shapes=("a=[2,3] b=[3,4] c=[4,1]",), symbolic=("a=[1,2] b=[2,2] c=[2,1]",),
)  # fmt: skip
RULE = Rule(
    "associate",
    (Variable("a", 2), Variable("b", 2, "weight"), Variable("c", 2, "weight")),
    ("matmul(matmul(a, b), c)",),
    ("matmul(a, matmul(b, c))",),
    ("dim(a, 0) >= 1",),
    certificate=CERTIFICATE,
    given=("dim(a, 1) == dim(b, 0)", "dim(b, 1) == dim(c, 0)"),
)
OTHER = dataclasses.replace(RULE, name="backwards", lhs=RULE.rhs, rhs=RULE.lhs, core=False)


def test_what_is_written_is_read() -> None:
    """The equations that are given are read off the certificate when a rule is written."""
    text, proofs = write_rules([dataclasses.replace(RULE, given=()), OTHER])
    assert read_rules(text, proofs=proofs) == (RULE, OTHER)
    assert read_rules(text) == tuple(
        dataclasses.replace(r, certificate=None) for r in (RULE, OTHER)
    )


def test_order_does_not_matter() -> None:
    assert write_rules([RULE, OTHER]) == write_rules([OTHER, RULE])


def test_unproved_rules_are_not_written() -> None:
    with pytest.raises(ArtifactError, match="has no proof"):
        write_rules([dataclasses.replace(RULE, certificate=None)])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("rhs matmul(a, matmul(b, c))", "rhs matmul(a, matmul(c, b))"),
        ("  when dim(a, 0) >= 1\n", ""),
        ("numeric real", "numeric exact"),
        ("a activation 2", "a activation 3"),
        ("  given dim(a, 1) == dim(b, 0)\n", ""),
    ],
)
def test_changed_rules_are_refused(old: str, new: str) -> None:
    text = write_rules([RULE]).rules
    assert old in text
    with pytest.raises(ArtifactError, match="no valid proof") as raised:
        read_rules(text.replace(old, new), "changed.rules")
    assert raised.value.code == "WH4001"
    assert "changed.rules" in str(raised.value)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("seed 0", "seed 1", "no valid proof"),
        ("axiom matmul.0\n", "\n", "no valid proof"),
        ("proof associate", "proof another", "no valid proof"),
        ("solver z3 5.4.0\n", "\n", "incomplete"),
    ],
)
def test_changed_certificates_are_refused(old: str, new: str, problem: str) -> None:
    text, proofs = write_rules([RULE])
    assert old in proofs
    with pytest.raises(ArtifactError, match=problem) as raised:
        read_rules(text, "changed.rules", proofs.replace(old, new))
    assert raised.value.code == "WH4001"


def test_a_certificate_of_another_rule_is_refused() -> None:
    text, proofs = write_rules([RULE])
    other = write_rules([dataclasses.replace(OTHER, name=RULE.name)]).rules
    assert read_rules(other, proofs=proofs), "the claim differs, the proof is the same"
    assert "proof " in text
    stripped = "\n".join(line for line in text.splitlines() if "proof " not in line)
    with pytest.raises(ArtifactError, match="no valid proof"):
        read_rules(stripped)


def test_a_hand_written_rule_is_a_candidate_and_no_rule() -> None:
    text = "rule mine\n  x activation 2\n  lhs relu(relu(x))\n  rhs relu(x)\n"
    with pytest.raises(ArtifactError, match="no valid proof"):
        read_rules(text)
    (candidate,) = read_candidates(text)
    assert candidate.certificate is None
    assert candidate.lhs == ("relu(relu(x))",)


def test_incomplete_text_is_refused() -> None:
    with pytest.raises(ArtifactError, match="incomplete"):
        read_candidates("rule half\n  x activation 2\n  lhs relu(x)\n")


def test_the_hash_is_of_the_claim() -> None:
    assert dataclasses.replace(RULE, name="x", certificate=None).hash == RULE.hash
    assert dataclasses.replace(RULE, when=()).hash != RULE.hash
    assert RULE.guarded("dim(a, 1) == 1").hash != RULE.hash
    assert RULE.guarded("dim(a, 1) == 1").certificate is None


def test_folders_hold_a_file_per_family(tmp_path: Path) -> None:
    relu = Rule("twice", (Variable("x", 2),), ("relu(relu(x))",), ("relu(x)",),
                certificate=CERTIFICATE)  # fmt: skip
    (tmp_path / "gone.rules").write_text("")
    written = write_folder([RULE, relu], tmp_path)
    names = ["activation.rules", "activation.proofs", "matmul.rules", "matmul.proofs"]
    assert [p.name for p in written] == names
    assert not (tmp_path / "gone.rules").exists()
    assert set(load_folder(tmp_path, certified=True)) == {RULE, relu}
    (tmp_path / "matmul.proofs").unlink()
    assert len(load_folder(tmp_path)) == 2
    with pytest.raises(ArtifactError, match="no valid proof"):
        load_folder(tmp_path, certified=True)
    assert family(relu) == "activation"


def test_terms_are_read_piece_by_piece_as_token_by_token() -> None:
    for rule in shipped()[::9]:
        assert rule.left == tuple(map(read_term, rule.lhs))
        assert rule.right == tuple(map(read_term, rule.rhs))
    assert read_shared("relu(add(x, y))") is read_shared("relu(add(x, y))")


@pytest.mark.parametrize(
    "text",
    ["relu( x )", "concat(split(x, axis = 0, sizes=[2, 1])[1], y, axis=k)", "mul(x, -0.5)", "x",
     'einsum(a, b, equation="ij,jk->ik")', "pool_weight(channels=dim(x, 1), kernel=[3, (2)])",
     "f()", "slice(x, starts=[p[q[0]], 1])"],
)  # fmt: skip
def test_unusual_terms_are_read_alike(text: str) -> None:
    assert read_shared(text) == read_term(text)


@pytest.mark.parametrize(
    "text",
    ["relu(x", "relu(x))", "relu(x)(y)", "add(x,, y)", "relu(x, axis=1, axis=2)", "f(x]",
     "relu(]x[)", "f(" * 400 + "x" + ")" * 400],
)  # fmt: skip
def test_what_is_no_term_is_refused_alike(text: str) -> None:
    with pytest.raises(GraphError) as whole:
        read_term(text)
    with pytest.raises(GraphError) as pieces:
        read_shared(text)
    assert whole.value.code == pieces.value.code


def test_both_sides_are_drawn() -> None:
    text = draw(RULE)
    assert "left:" in text
    assert "right:" in text
    assert "|- a  activation, 2 axes" in text
    assert "when dim(a, 0) >= 1" in text


def test_loading_rules_needs_no_solver() -> None:
    code = (
        "import sys; from whet.superopt.rules.files import shipped; "
        "[(r.left, r.conditions) for r in shipped()]; "
        "sys.exit('z3' in sys.modules or 'numba' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_shipped_rules_are_proved() -> None:
    for rule in shipped(certified=True):
        certificate = rule.certificate
        assert certificate is not None
        assert len(set(certificate.shapes)) >= 16
        assert len(set(certificate.symbolic)) == len(certificate.symbolic) <= 64


SAMPLE = shipped(certified=True)[::40]


@pytest.mark.parametrize("rule", SAMPLE, ids=lambda r: r.name)
def test_a_sample_of_the_shipped_rules_is_proved_again(rule: Rule) -> None:
    from whet.superopt.verify.gates import shared_prover, verify_as_stated

    report = verify_as_stated(rule, shared_prover())
    assert report.outcome == "proved", report
    assert report.rule == rule
