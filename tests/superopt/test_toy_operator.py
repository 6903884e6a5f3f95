"""An operator from outside the package: its laws become axioms, its rules are proved."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from whet.core.errors import UsageError
from whet.core.executor import LocalProcesses
from whet.core.module_executor import OutsideModule, WithModules
from whet.ops.base import REGISTRY
from whet.superopt.generate.alphabet import CORE, Alphabet
from whet.superopt.generate.kinds import plain
from whet.superopt.generate.outside import outside_letters
from whet.superopt.generate.pools import Pool
from whet.superopt.prune.candidates import find_candidates
from whet.superopt.rules.rule import Rule, Variable
from whet.superopt.verify.axioms import laws
from whet.superopt.verify.gates import verify_all, verify_as_stated
from whet.superopt.verify.prover import Prover

MIRROR = OutsideModule(str(Path(__file__).parent / "mirror_operator.py"))


@pytest.fixture(scope="module", autouse=True)
def mirror() -> Iterator[ModuleType]:
    """The operator `mirror`, for these tests only."""
    module = MIRROR.load()
    yield module
    del REGISTRY["mirror"], sys.modules[module.__name__]


@pytest.fixture(scope="module")
def prover(mirror: ModuleType) -> Prover:
    return Prover(laws())


def rule(name: str, left: str, right: str, **ranks: int) -> Rule:
    return Rule(name, tuple(Variable(n, r) for n, r in ranks.items()), (left,), (right,))


TRUE = (
    rule("mirrored-layer", "mirror(relu(matmul(a, b)))", "relu(matmul(a, mirror(b)))", a=2, b=2),
    rule("twice", "mirror(relu(mirror(x)))", "relu(x)", x=3),
    rule("merge", "concat(mirror(matmul(a, c)), mirror(matmul(b, c)), axis=0)",
         "matmul(concat(a, b, axis=0), mirror(c))", a=2, b=2, c=2),
)  # fmt: skip
FALSE = (
    rule("wrong-operand", "mirror(matmul(a, b))", "matmul(mirror(a), b)", a=2, b=2),
    rule("wrong-axis", "mirror(concat(x, y, axis=1))",
         "concat(mirror(x), mirror(y), axis=1)", x=2, y=2),
)  # fmt: skip


@pytest.mark.parametrize("stated", TRUE, ids=lambda r: r.name)
def test_its_true_rules_are_proved(stated: Rule, prover: Prover) -> None:
    report = verify_as_stated(stated, prover)
    assert report.outcome == "proved", report
    assert any(
        a.startswith("mirror.")
        for a in report.rule.certificate.axioms  # type: ignore[union-attr]
    )


@pytest.mark.parametrize("stated", FALSE, ids=lambda r: r.name)
def test_its_false_rules_are_refuted(stated: Rule, prover: Prover) -> None:
    assert verify_as_stated(stated, prover).outcome == "refuted"


# ------------------------------------------------------------------------------------ generating
FOUND = {
    ("mirror(mirror(x))", "x"),
    ("mirror(relu(x))", "relu(mirror(x))"),
    ("mirror(matmul(x, w))", "matmul(x, mirror(w))"),
    ("mirror(relu(mirror(x)))", "relu(x)"),
}


def small_pool() -> Pool:
    letters = tuple(x for x in CORE if x.name in ("relu", "matmul"))
    inputs = (("x1", plain((3, 4), "activation")), ("w1", plain((4, 4), "weight")))
    return Pool("small", inputs, Alphabet(letters)).with_letters("mirror", outside_letters(MIRROR))


def test_generating_at_size_3_finds_its_rules() -> None:
    executor = WithModules(LocalProcesses(2), (MIRROR,))
    catalogue = find_candidates([small_pool()], 3, executor=executor)
    stated = {(f.lhs[0], f.rhs[0]) for c in catalogue.candidates for f in c.forms}
    stated |= {(b, a) for a, b in stated}
    assert stated >= FOUND, sorted(stated)


def test_workers_know_its_laws() -> None:
    executor = WithModules(LocalProcesses(2), (MIRROR,))
    reports = verify_all(TRUE[:2], 0, executor, batch=1)
    assert [r.outcome for r in reports] == ["proved", "proved"]


def test_a_file_without_operators_is_refused(tmp_path: Path) -> None:
    (tmp_path / "nothing_in_here.py").write_text("")
    with pytest.raises(UsageError, match="defines no operators"):
        outside_letters(OutsideModule(str(tmp_path / "nothing_in_here.py")))
    with pytest.raises(UsageError, match="there is no file"):
        OutsideModule(str(tmp_path / "missing.py")).load()
