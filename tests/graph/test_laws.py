"""Every law that an operator states is true on numbers."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping

import numpy as np
import pytest

from whet.core.dtypes import DType, bool_, f32, f64, i64
from whet.core.errors import OperatorError, WhetError
from whet.core.types import Array, TensorType
from whet.graph.graph import Graph, make_input
from whet.graph.interpret import interpret
from whet.graph.laws import read_law
from whet.graph.terms import build_term
from whet.ops import REGISTRY
from whet.ops.base import Law

LAWS = [
    pytest.param(law, id=f"{name}-{n}")
    for name, cls in sorted(REGISTRY.items())
    if isinstance(cls.axioms, tuple)
    for n, law in enumerate(cls.axioms)
]
GUARD = re.compile(r"(\w+) (>=|>|!=|<=|<) (-?[\d.]+)")


def typings(law: Law, floats: DType) -> Iterator[dict[str, DType]]:
    """Element types for the variables, those with the most floats first."""
    names = list(read_law(law).shapes)
    choices = itertools.product((floats, i64, bool_), repeat=len(names))
    for choice in sorted(choices, key=lambda c: sum(d != floats for d in c)):
        yield dict(zip(names, choice))


def law_graph(law: Law, floats: tuple[DType, ...]) -> Graph:
    """Both sides as the outputs of one graph, under the first element types that fit."""
    problem: WhetError | None = None
    read = read_law(law)
    for wanted in floats:
        for dtypes in typings(law, wanted):
            inputs = {n: make_input(n, TensorType(s, dtypes[n])) for n, s in read.shapes.items()}
            try:
                sides = [
                    build_term(t, inputs, read.attributes, wanted) for t in (read.left, read.right)
                ]
            except OperatorError as error:
                problem = problem or error
                continue
            values = (*sides[0], *sides[1])
            names = tuple(f"y{n}" for n in range(len(values)))
            return Graph(tuple(inputs.values()), values, names)
    raise AssertionError(f"no element types fit {law.text}: {problem}")


def draw(law: Law, graph: Graph, seed: int, *, whole: bool) -> list[Array]:
    """Arrays for the variables that respect the guards `x > 0` and the like."""
    rng = np.random.default_rng(seed)
    arrays = []
    for value in graph.inputs:
        low, high, nonzero = -4.0, 4.0, False
        for guard in law.when:
            for name, comparison, bound in GUARD.findall(guard):
                if name == value.name:
                    low = max(low, float(bound)) if comparison.startswith(">") else low
                    high = min(high, float(bound)) if comparison.startswith("<") else high
                    nonzero |= comparison in (">", "<", "!=")
        t = value.tensor_type
        if t.dtype == bool_:
            arrays.append(rng.integers(0, 2, t.shape).astype(np.bool_))
            continue
        if whole or t.dtype.is_integer:
            drawn = rng.integers(0 if t.dtype == i64 else int(low), int(high) + 1, t.shape)
            if t.dtype == i64:
                drawn %= 2  # small enough to be an index anywhere
        else:
            drawn = rng.uniform(low, high, t.shape)
        drawn = np.where(nonzero & (drawn == 0), 1, drawn)
        arrays.append(drawn.astype(t.dtype.numpy))
    return arrays


def same_bits(left: Array, right: Array) -> bool:
    """Whether the arrays are equal, with signs of zeros but not kinds of NaN told apart."""
    if left.dtype.kind != "f":
        return left.dtype == right.dtype and np.array_equal(left, right)
    same = np.array_equal(left, right, equal_nan=True)
    signs = np.array_equal(np.signbit(left[left == 0]), np.signbit(right[right == 0]))
    return left.dtype == right.dtype and same and signs


@pytest.mark.parametrize("law", LAWS)
def test_law_is_true(law: Law) -> None:
    exact = law.numeric == "exact"
    graph = law_graph(law, (f32,) if exact else (f64, f32))
    for seed in range(3):
        # Whole numbers keep sums exact, so an exact law must give the same bits in any order.
        results = interpret(graph, draw(law, graph, seed, whole=exact))
        half = len(results) // 2
        for left, right in zip(results[:half], results[half:], strict=True):
            if exact:
                assert same_bits(left, right)
            else:
                tolerance = 1e-5 if left.dtype == np.float32 else 1e-9
                np.testing.assert_allclose(left, right, rtol=tolerance, atol=tolerance)


def test_false_laws_are_noticed() -> None:
    wrong = Law("add(x, y) = add(x, x)", "exact", (("x", (2, 3)), ("y", (2, 3))))
    with pytest.raises(AssertionError):
        test_law_is_true(wrong)


def test_every_guard_is_text() -> None:
    laws: Mapping[str, Law] = {str(p.id): p.values[0] for p in LAWS}  # type: ignore[misc]
    assert all(isinstance(g, str) and g.strip() for law in laws.values() for g in law.when)
    assert len(laws) >= 50
