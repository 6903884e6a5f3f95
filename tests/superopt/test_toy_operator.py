"""An operator from outside the package: its laws become axioms, its rules are proved."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

pytest.importorskip("z3")

from whet.core.dtypes import FLOATS, f32
from whet.core.types import Array, TensorType
from whet.ir.expr import Expr
from whet.ir.tensor import Compute, Tensor, compute
from whet.ops.base import REGISTRY, Op, Sample, law, operator, require
from whet.superopt.rules.rule import Rule, Variable
from whet.superopt.verify.axioms import laws
from whet.superopt.verify.gates import verify_as_stated
from whet.superopt.verify.prover import Prover


@pytest.fixture(scope="module")
def prover() -> Iterator[Prover]:
    """A prover that knows an operator `mirror`, which turns a matrix around its last axis."""

    @operator("mirror", "x")
    class Mirror(Op):
        def infer(self, x: TensorType) -> TensorType:
            require(x.dtype in FLOATS and x.rank >= 1, self, "no meaning", x, code="WH1103")
            return x

        def compute(self, x: Tensor) -> Compute:
            last = x.shape[-1] - 1

            def body(*i: Expr) -> Expr:
                return x[(*i[:-1], -i[-1] + last)]

            return compute(x.shape, body, "mirror")

        def reference(self, x: Array) -> Array:
            return np.flip(x, -1)

        axioms = (
            law("mirror(mirror(x)) = x", "exact", x=(2, 3)),
            law("mirror(relu(x)) = relu(mirror(x))", "exact", x=(2, 3)),
            law("mirror(matmul(a, b)) = matmul(a, mirror(b))", "exact", a=(2, 3), b=(3, 4)),
        )

        @classmethod
        def samples(cls) -> tuple[Sample, ...]:
            return (Sample(cls(), (TensorType((2, 3), f32),)),)

        @classmethod
        def sample(cls, rng: np.random.Generator) -> Sample:
            shape = tuple(int(d) for d in rng.integers(1, 5, int(rng.integers(1, 5))))
            return Sample(cls(), (TensorType(shape, f32),))

    yield Prover(laws())
    del REGISTRY["mirror"]


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
