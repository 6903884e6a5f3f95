"""Rule files: the same bytes every time, and nothing unproved gets in."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from whet.core.errors import ArtifactError
from whet.superopt.rules.drawing import draw
from whet.superopt.rules.files import (
    family,
    load_folder,
    read_candidates,
    read_rules,
    shipped,
    write_folder,
    write_rules,
)
from whet.superopt.rules.rule import Certificate, Rule, Variable

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
)
OTHER = dataclasses.replace(RULE, name="backwards", lhs=RULE.rhs, rhs=RULE.lhs, core=False)


def test_what_is_written_is_read() -> None:
    assert read_rules(write_rules([RULE, OTHER])) == (RULE, OTHER)


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
        ("seed 0", "seed 1"),
        ("solver z3 5.4.0\n", "\n"),
    ],
)
def test_changed_rules_are_refused(old: str, new: str) -> None:
    text = write_rules([RULE])
    assert old in text
    with pytest.raises(ArtifactError, match="no valid proof") as raised:
        read_rules(text.replace(old, new), "changed.rules")
    assert raised.value.code == "WH4001"
    assert "changed.rules" in str(raised.value)


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
    assert [p.name for p in written] == ["activation.rules", "matmul.rules"]
    assert not (tmp_path / "gone.rules").exists()
    assert set(load_folder(tmp_path)) == {RULE, relu}
    assert family(relu) == "activation"


def test_both_sides_are_drawn() -> None:
    text = draw(RULE)
    assert "left:" in text
    assert "right:" in text
    assert "|- a  activation, 2 axes" in text
    assert "when dim(a, 0) >= 1" in text


def test_loading_rules_needs_no_solver() -> None:
    code = (
        "import sys; from whet.superopt.rules.files import shipped; shipped(); "
        "sys.exit('z3' in sys.modules or 'numba' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_shipped_rules_are_proved() -> None:
    for rule in shipped():
        certificate = rule.certificate
        assert certificate is not None
        assert len(set(certificate.shapes)) >= 16
        assert len(set(certificate.symbolic)) == len(certificate.symbolic) <= 64


SAMPLE = shipped()[::40]


@pytest.mark.parametrize("rule", SAMPLE, ids=lambda r: r.name)
def test_a_sample_of_the_shipped_rules_is_proved_again(rule: Rule) -> None:
    from whet.superopt.verify.gates import shared_prover, verify_as_stated

    report = verify_as_stated(rule, shared_prover())
    assert report.outcome == "proved", report
    assert report.rule == rule
