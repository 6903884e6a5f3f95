"""Every registered operator is complete: it has each member that the others derive from."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from whet.core.errors import WhetError
from whet.ops.base import REGISTRY, Law, NoAlgebra, Op, Sample, make_op
from whet.ops.shared.control import Control

OPERATORS = sorted(REGISTRY)
WAYS = ("compute", "expand", "program")


@pytest.mark.parametrize("name", OPERATORS)
def test_members(name: str) -> None:
    cls = REGISTRY[name]
    assert issubclass(cls, Op)
    assert dataclasses.is_dataclass(cls)
    assert cls.name == name
    assert cls.__doc__
    assert not any(i.startswith("*") for i in cls.inputs[:-1]), "only the last input is variadic"
    for member in ("infer", "reference", "axioms", "samples", "sample"):
        assert hasattr(cls, member), f"{name} has no {member}"
    ways = [w for w in WAYS if getattr(cls, w) is not None] + ["host"] * cls.host
    ways = ways or ["bodies"] * issubclass(cls, Control)
    assert len(ways) == 1, f"{name} says what it computes in {len(ways)} ways: {ways}"


@pytest.mark.parametrize("name", OPERATORS)
def test_algebra(name: str) -> None:
    axioms = REGISTRY[name].axioms
    if isinstance(axioms, NoAlgebra):
        assert axioms.reason
        return
    assert isinstance(axioms, tuple)
    assert axioms, f"{name} has neither laws nor a reason for none"
    for axiom in axioms:
        assert isinstance(axiom, Law)
        assert axiom.text.count(" = ") == 1, axiom.text
        assert any(f"{op}(" in axiom.text for op in REGISTRY), axiom.text
        assert axiom.example, f"no example shapes for {axiom.text}"


@pytest.mark.parametrize("name", OPERATORS)
def test_samples(name: str) -> None:
    cls = REGISTRY[name]
    samples = cls.samples()
    assert samples, f"{name} has no samples"
    rng = np.random.default_rng(0)
    for sample in (*samples, *(cls.sample(rng) for _ in range(3))):
        assert isinstance(sample, Sample)
        assert type(sample.op) is cls
        assert sample.op.infer_types(sample.types)
        assert len(sample.domains) in (0, len(sample.types))


@pytest.mark.parametrize("name", OPERATORS)
def test_attributes_rebuild_the_operator(name: str) -> None:
    for sample in REGISTRY[name].samples():
        assert make_op(name, sample.op.attributes()) == sample.op
        assert hash(make_op(name, sample.op.attributes())) == hash(sample.op)


def test_lack_of_memory_is_an_error_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    def reference(self: Op, x: object) -> object:
        raise MemoryError

    monkeypatch.setattr(REGISTRY["relu"], "reference", reference)
    with pytest.raises(WhetError, match=r"WH1005.*relu of f32\[3\]"):
        make_op("relu", {}).run_reference((np.zeros(3, np.float32),))
