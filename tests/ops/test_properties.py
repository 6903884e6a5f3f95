"""What kernels are generated from means the same as the NumPy reference, for every operator."""

from __future__ import annotations

import numpy as np
import pytest

from whet.core.dtypes import DType, bf16, f16, f32, f64, i32
from whet.core.types import Array, TensorType, type_of
from whet.graph.build import GraphBuilder
from whet.graph.graph import Graph
from whet.graph.interpret import interpret
from whet.ir.evaluate import evaluate
from whet.ir.interpreter import run
from whet.ir.tensor import placeholder
from whet.ops.arithmetic import Add
from whet.ops.base import REGISTRY, Sample
from whet.ops.shared.control import Control

OPERATORS = sorted(REGISTRY)
RANDOM_SAMPLES = 12
RELATIVE: dict[DType, float] = {f64: 1e-10, f32: 2e-5, f16: 4e-3, bf16: 3e-2}
"""Both sides may sum in another order, so floats agree up to a few roundings; all other types,
among them those that only store, have no arithmetic and must be equal."""


def has_second_meaning(name: str) -> bool:
    """False for what runs on the host, and for loops that only native code can say otherwise."""
    cls = REGISTRY[name]
    return not cls.host and (not issubclass(cls, Control) or cls.expand is not None)


def second_meaning(sample: Sample, arrays: tuple[Array, ...]) -> tuple[Array, ...]:
    """The result by tensor expressions, by simpler operators, or by loops."""
    op = sample.op
    if op.compute is not None:
        tensors = tuple(placeholder(t.shape, t.dtype, f"x{n}") for n, t in enumerate(sample.types))
        outputs = op.compute_tensors(tensors)
        return evaluate(outputs, dict(zip(tensors, arrays)))
    if op.expand is not None:
        builder = GraphBuilder()
        inputs = tuple(builder.input(f"x{n}", t) for n, t in enumerate(sample.types))
        results = op.expand(builder, *inputs)
        outputs = results if isinstance(results, tuple) else (results,)
        names = tuple(f"y{n}" for n in range(len(outputs)))
        return interpret(Graph(inputs, outputs, names), arrays)
    assert op.program is not None
    return run(op.program(*sample.types), arrays)


def check_same(got: Array, expected: Array, what: str) -> None:
    assert type_of(got) == type_of(expected), what
    dtype = type_of(expected).dtype
    wide = expected.astype(np.float64)
    if dtype not in RELATIVE:
        exact = wide if dtype.is_float else expected
        np.testing.assert_array_equal(got.astype(exact.dtype), exact, what)
        return
    step = RELATIVE[dtype]
    finite = np.abs(wide[np.isfinite(wide)])
    scale = float(finite.max()) if finite.size else 1.0
    np.testing.assert_allclose(
        got.astype(np.float64), wide, rtol=step, atol=step * max(scale, 1.0), err_msg=what
    )


def check_sample(sample: Sample, rng: np.random.Generator) -> None:
    arrays = sample.arrays(rng)
    with np.errstate(all="ignore"):
        expected = sample.op.run_reference(arrays)
        got = second_meaning(sample, arrays)
    shown = f"{sample.op} on {', '.join(map(str, sample.types))}"
    assert len(got) == len(expected), shown
    for a, b in zip(got, expected):
        check_same(a, b, shown)


@pytest.mark.parametrize("name", [n for n in OPERATORS if has_second_meaning(n)])
def test_reference_agrees(name: str) -> None:
    cls = REGISTRY[name]
    rng = np.random.default_rng(sum(name.encode()))
    for sample in (*cls.samples(), *(cls.sample(rng) for _ in range(RANDOM_SAMPLES))):
        check_sample(sample, rng)


@pytest.mark.parametrize("name", [n for n in OPERATORS if REGISTRY[n].host])
def test_host_operators_run(name: str) -> None:
    cls = REGISTRY[name]
    rng = np.random.default_rng(sum(name.encode()))
    for sample in (*cls.samples(), *(cls.sample(rng) for _ in range(RANDOM_SAMPLES))):
        sample.op.run_reference(sample.arrays(rng))  # checks rank and element types


@pytest.mark.parametrize("dtype", [f32, bf16, i32])
def test_a_difference_is_noticed(dtype: DType) -> None:
    class Wrong(Add):
        """Adds by tensor expressions and subtracts by NumPy."""

        numpy = staticmethod(np.subtract)

    with pytest.raises(AssertionError, match="add on"):
        check_sample(Sample(Wrong(), (TensorType((3,), dtype),) * 2), np.random.default_rng(0))
