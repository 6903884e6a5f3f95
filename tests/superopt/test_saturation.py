"""E-graphs and extraction: congruence, circles, optimality against all choices, limits."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence

import numpy as np
import pytest

from whet.core.dtypes import f32
from whet.core.errors import WhetError
from whet.core.types import TensorType
from whet.graph.graph import Graph, Input, Node, Result, Value, apply, make_constant, make_input
from whet.graph.interpret import interpret
from whet.joint.kept import shared_patterns
from whet.ops.activation import Relu
from whet.ops.arithmetic import Add, Mul
from whet.ops.base import Op
from whet.ops.matmul import MatMul
from whet.ops.movement import Concat, Split
from whet.superopt.apply.rewrite import Part, Rewrite
from whet.superopt.saturate import optimal as optimal_module
from whet.superopt.saturate.egraph import EGraph
from whet.superopt.saturate.optimal import circles_of, optimal
from whet.superopt.saturate.problem import (
    Option,
    Problem,
    extraction,
    greedy,
    without_circles,
)
from whet.superopt.saturate.saturation import Limits, saturate


def tensor(name: str, *shape: int) -> Value:
    return make_input(name, TensorType(shape, f32))


def weight(seed: int, *shape: int) -> Value:
    return make_constant(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def one(op: Op, *values: Value) -> Result:
    (result,) = apply(op, *values)
    return result


def equal(old: Value, new: Value) -> Rewrite:
    return Rewrite("told", "exact", (old,), (new,))


# -------------------------------------------------------------------------------------- e-graphs
def test_users_of_equal_values_are_equal() -> None:
    x, y = tensor("x", 2, 3), tensor("y", 2, 3)
    a, b = one(Mul(), x, y), one(Add(), x, y)
    deep, other = one(Relu(), one(Relu(), a)), one(Relu(), one(Relu(), b))
    graph = EGraph(Part((x, y), (deep, other)))
    assert graph.find(deep) is not graph.find(other)
    graph.union(equal(a, b))
    graph.rebuild()
    assert graph.find(deep) is graph.find(other)
    assert len(graph) == 4, "mul, add, and one relu on each level"
    assert all(v is graph.find(v) for node in graph.nodes for v in node.inputs)


def test_results_of_equal_splits_are_equal_one_by_one() -> None:
    x, y = tensor("x", 2, 6), tensor("y", 2, 6)
    a, b = one(Mul(), x, y), one(Add(), x, y)
    left, right = apply(Split(1, (2, 4)), a), apply(Split(1, (2, 4)), b)
    graph = EGraph(Part((x, y), (*left, *right)))
    graph.union(equal(a, b))
    graph.rebuild()
    assert [graph.find(v) for v in left] == [graph.find(v) for v in right]


def test_values_of_a_class_may_need_the_class() -> None:
    x = tensor("x", 2, 3)
    a = one(Relu(), x)
    twice = one(Relu(), a)
    graph = EGraph(Part((x,), (twice,)))
    graph.union(equal(twice, a))
    graph.rebuild()
    found = extraction(graph, lambda node: 1.0)
    for choice in (optimal(found.problem, 10.0), greedy(found.problem)):
        assert choice is not None
        assert found.part(choice)[0].outputs == (a,)


def test_the_same_operator_with_other_weights_is_no_news() -> None:
    x = tensor("x", 2, 3)
    a, b = one(MatMul(), x, weight(0, 3, 3)), one(MatMul(), x, weight(1, 3, 3))
    graph = EGraph(Part((x,), (a,)))
    graph.union(equal(a, b))
    assert len(graph) == 1


# ------------------------------------------------------------------------------------ extraction
def cheapest(problem: Problem) -> float:
    """The cost of the best of all choices."""
    ways: Sequence[Sequence[int | None]] = [g or [None] for g in problem.givers()]
    return min(
        problem.cost({c: n for c, n in enumerate(chosen) if n is not None})
        for chosen in itertools.product(*ways)
    )


def random_problem(rng: random.Random) -> Problem:
    """A graph, and more options for its classes, some with two results, many in circles."""
    classes = rng.randint(3, 7)
    options = []
    for n in range(3):
        for c in range(classes):
            if n and rng.random() < 0.4:
                continue
            among = range(classes) if n else range(c)
            needs = tuple(rng.sample(among, min(len(among), rng.randint(0, 2))))
            gives = (c, rng.randrange(classes)) if n and rng.random() < 0.3 else (c,)
            options.append(Option(rng.choice([0.0, 1.0, 2.5, 4.0, 7.0]), gives, needs))
    return Problem(tuple(options), tuple({classes - 1, rng.randrange(classes)}), classes)


@pytest.mark.parametrize("seed", range(60))
def test_the_integer_program_finds_the_best_of_all_choices(seed: int) -> None:
    problem = random_problem(random.Random(seed))
    choice = optimal(problem, 30.0)
    assert choice is not None
    assert not circles_of(problem, choice)
    assert problem.cost(choice) == pytest.approx(cheapest(problem))


@pytest.mark.parametrize("seed", range(60))
def test_greedy_and_filtered_choices_are_acyclic_and_no_better(seed: int) -> None:
    problem = random_problem(random.Random(1000 + seed))
    best = cheapest(problem)
    quick = greedy(problem)
    filtered = optimal(without_circles(problem), 30.0)
    assert quick is not None
    assert filtered is not None
    for choice in (quick, filtered):
        assert math.isfinite(problem.cost(choice))
        assert problem.cost(choice) >= best - 1e-9


def test_a_free_circle_is_not_taken() -> None:
    """Both classes could be had from each other for nothing."""
    options = (Option(5.0, (0,), ()), Option(0.0, (1,), (0,)), Option(0.0, (0,), (1,)))
    problem = Problem(options, (1,), 2)
    for choice in (optimal(problem, 10.0), greedy(problem), optimal(without_circles(problem), 9.0)):
        assert choice is not None
        assert problem.cost(choice) == 5.0


def test_a_long_circle_is_cut() -> None:
    """Four classes in a ring, of which any may be paid for."""
    ring = [Option(0.0, (c,), ((c + 1) % 4,)) for c in range(4)]
    paid = [Option(3.0 + c, (c,), ()) for c in range(4)]
    problem = Problem((*ring, *paid), (0,), 4)
    choice = optimal(problem, 10.0)
    assert choice is not None
    assert problem.cost(choice) == 3.0


def test_nothing_is_found_where_there_is_nothing() -> None:
    problem = Problem((Option(1.0, (0,), (1,)), Option(1.0, (1,), (0,))), (0,), 2)
    assert optimal(problem, 10.0) is None
    assert greedy(problem) is None


def test_without_time_there_is_no_optimum() -> None:
    assert optimal(Problem((Option(1.0, (0,), ()),), (0,), 1), 0.0) is None


def test_scipy_is_asked_for_when_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr(optimal_module, "import_module", missing)
    with pytest.raises(WhetError, match="needs scipy") as caught:
        optimal(Problem((Option(1.0, (0,), ()),), (0,), 1), 10.0)
    assert caught.value.hint == "pip install scipy"


# ------------------------------------------------------------------------------------ saturation
def by_products(node: Node) -> float:
    """A toy price: multiplications of products, and a little for all else."""
    if isinstance(node.op, MatMul):
        a, b = (v.tensor_type.shape for v in node.inputs)
        return 10.0 + a[0] * a[1] * b[1]
    return 0.1


def best_part(part: Part, limits: Limits | None = None) -> Part:
    made = saturate(part, shared_patterns("real"), limits or Limits(seconds=60.0))
    found = extraction(made.graph, by_products)
    choice = optimal(without_circles(found.problem), 60.0)
    assert choice is not None
    return found.part(choice)[0]


def products(part: Part) -> list[tuple[int, ...]]:
    return [n.results[0].tensor_type.shape for n in part.nodes if isinstance(n.op, MatMul)]


def check_same(part: Part, made: Part) -> None:
    arrays = [
        np.random.default_rng(n).standard_normal(v.tensor_type.shape).astype(np.float32)
        for n, v in enumerate(part.inputs)
    ]
    inputs = tuple(v for v in part.inputs if isinstance(v, Input))
    names = tuple(f"y{n}" for n in range(len(part.outputs)))
    graphs = [Graph(inputs, p.outputs, names) for p in (part, made)]
    for a, b in zip(*(interpret(g, arrays, precise=True) for g in graphs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_products_that_share_an_input_become_one() -> None:
    x = tensor("x", 5, 8)
    parts = [one(Relu(), one(MatMul(), x, weight(n, 8, 4 + n))) for n in range(3)]
    part = Part((x,), tuple(parts))
    made = best_part(part)
    assert products(made) == [(5, 15)]
    after = [n for n in made.nodes if n.op.name in ("relu", "maximum")]
    assert len(after) == 1, "what follows is done at once"
    check_same(part, made)


def test_products_are_re_associated_where_it_pays() -> None:
    """x (a b) of a low rank is two small products; (x a) b of a wide middle is one."""
    x = tensor("x", 6, 16)
    wide = one(MatMul(), one(MatMul(), x, weight(0, 16, 64)), weight(1, 64, 16))
    made = best_part(Part((x,), (wide,)))
    assert products(made) == [(6, 16)]
    check_same(Part((x,), (wide,)), made)
    low = one(MatMul(), one(MatMul(), x, weight(0, 16, 2)), weight(1, 2, 64))
    kept = best_part(Part((x,), (low,)))
    assert products(kept) == [(6, 2), (6, 64)]


def test_a_merge_that_would_need_itself_is_not_extracted() -> None:
    """The second product reads the first: there is no product of both."""
    x, w = tensor("x", 8, 8), weight(0, 8, 8)
    first = one(MatMul(), x, w)
    second = one(MatMul(), one(Relu(), first), w)
    part = Part((x,), (first, second))
    made = best_part(part)
    assert len(products(made)) == 2
    check_same(part, made)


def test_moving_data_back_and_forth_ends() -> None:
    x, y = tensor("x", 4, 3), tensor("y", 4, 5)
    joined = one(Concat(1), one(Relu(), x), one(Relu(), y))
    left, right = apply(Split(1, (3, 5)), joined)
    part = Part((x, y), (one(Mul(), left, x), one(Mul(), right, y), joined))
    made = saturate(part, shared_patterns("real"), Limits(seconds=60.0))
    assert made.complete
    check_same(part, best_part(part))


@pytest.mark.parametrize("nodes", [5, 30, 80])
def test_e_graphs_keep_to_their_limits(nodes: int) -> None:
    x = tensor("x", 5, 8)
    parts = [one(Relu(), one(MatMul(), x, weight(n, 8, 4 + n))) for n in range(8)]
    part = Part((x,), tuple(parts))
    whole = saturate(part, shared_patterns("real"), Limits(nodes=nodes, seconds=60.0))
    largest = 3 * len(parts)
    assert len(whole.graph) <= max(nodes, len(part.nodes)) + largest, "one rewrite may go over"
    assert not whole.complete
    check_same(part, best_part(part, Limits(nodes=nodes, seconds=60.0)))


def test_without_time_the_graph_stays() -> None:
    x = tensor("x", 5, 8)
    part = Part((x,), (one(Relu(), one(MatMul(), x, weight(0, 8, 4))),))
    made = saturate(part, shared_patterns("real"), Limits(seconds=0.0))
    assert (len(made.graph), made.complete) == (len(part.nodes), False)
