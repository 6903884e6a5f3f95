"""Rules at work on graphs: matches, conditions, types, cycles, numeric classes."""

from __future__ import annotations

import numpy as np
import pytest

from whet.core.dtypes import f32, i32
from whet.core.types import TensorType
from whet.graph.build import GraphBuilder
from whet.graph.graph import Computed, Constant, Graph, Value, compute_later, make_constant
from whet.graph.interpret import interpret
from whet.joint.recipe import follow_recipe, write_recipe
from whet.ops.activation import Relu
from whet.ops.arithmetic import Add, Mul
from whet.ops.conv import Conv
from whet.ops.matmul import MatMul
from whet.ops.movement import Concat, Slice, Split
from whet.superopt.apply.axis_rules import merge_rewrites, slice_rewrites
from whet.superopt.apply.match import Matcher
from whet.superopt.apply.normal import NormalBuilder, Run, run_of
from whet.superopt.apply.patterns import Patterns, commutative
from whet.superopt.apply.rewrite import CycleError, Part, Rewrite, admit, applied
from whet.superopt.rules.files import shipped
from whet.superopt.rules.rule import Rule, Variable

PLAIN = Conv((1, 1), (1, 1, 1, 1), (1, 1), 1)


def rule(
    lhs: str,
    rhs: str,
    *variables: Variable,
    when: tuple[str, ...] = (),
    given: tuple[str, ...] = (),
) -> Rule:
    """A rule as if it were proved; planted ones may be false."""
    return Rule("planted", variables, (lhs,), (rhs,), when, given=given)


def x2(name: str) -> Variable:
    return Variable(name, 2)


def rewrites(graph: Graph, *rules: Rule, numerics: str = "real") -> list[Rewrite]:
    patterns = Patterns(rules, numerics)  # type: ignore[arg-type]
    return list(Matcher(patterns).rewrites(Part(graph.inputs, graph.outputs)))


class Make:
    """A graph under construction."""

    def __init__(self) -> None:
        self.b = GraphBuilder()
        self.inputs: list[Value] = []
        self.rng = np.random.default_rng(0)

    def x(self, *shape: int, dtype=f32) -> Value:
        made = self.b.input(f"x{len(self.inputs)}", TensorType(shape, dtype))
        self.inputs.append(made)
        return made

    def w(self, *shape: int) -> Constant:
        return make_constant(self.rng.standard_normal(shape).astype(np.float32))

    def graph(self, *outputs: Value) -> Graph:
        return Graph(tuple(self.inputs), outputs, tuple(f"y{n}" for n in range(len(outputs))))  # type: ignore[arg-type]


def assert_same(before: Graph, rewrite: Rewrite) -> Graph:
    """The rewritten graph, which computes the same."""
    part = applied(Part(before.inputs, before.outputs), [rewrite])
    recipe = write_recipe(before, part.outputs)
    assert recipe is not None
    after = follow_recipe(recipe, before)
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal(v.tensor_type.shape).astype(np.float32) for v in before.inputs]
    for a, b in zip(
        interpret(before, arrays, precise=True), interpret(after, arrays, precise=True)
    ):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
    return after


# ------------------------------------------------------------------------------------- shipped
def test_the_shipped_merge_of_products_fires() -> None:
    m = Make()
    x = m.x(4, 6)
    graph = m.graph(m.b.one(MatMul(), x, m.w(6, 3)), m.b.one(MatMul(), x, m.w(6, 5)))
    found = [r for r in rewrites(graph, *shipped()) if len(r.old) == 2]
    assert found
    after = assert_same(graph, found[0])
    assert sum(n.op.name == "matmul" for n in after.nodes) == 1


def test_matches_are_modulo_commutativity() -> None:
    assert {"add", "mul"} <= commutative()
    assert "sub" not in commutative()
    m = Make()
    x, y, z = m.x(2, 3), m.x(2, 3), m.x(2, 3)
    law = rule("add(mul(x, z), mul(y, z))", "mul(add(x, y), z)", x2("x"), x2("y"), x2("z"))
    one = m.graph(m.b.one(Add(), m.b.one(Mul(), z, x), m.b.one(Mul(), y, z)))
    assert any(len(r.new[0].node.inputs) == 2 for r in rewrites(one, law))  # type: ignore[attr-defined]
    assert_same(one, rewrites(one, law)[0])


def test_a_concat_of_three_is_one_of_two_in_two_ways() -> None:
    m = Make()
    x, y, z = m.x(2, 3), m.x(2, 4), m.x(2, 5)
    law = rule("relu(concat(x, y, axis=1))", "concat(relu(x), relu(y), axis=1)", x2("x"), x2("y"))
    graph = m.graph(m.b.one(Relu(), m.b.one(Concat(1), x, y, z)))
    found = rewrites(graph, law)
    assert len(found) == 2
    for rewrite in found:
        assert_same(graph, rewrite)


# ----------------------------------------------------------------------------- planted faults
def test_guards_and_conditions_are_checked_at_every_use() -> None:
    m = Make()
    x, y = m.x(2, 3), m.x(4, 3)
    law = "concat(x, y, axis=0)", "concat(y, x, axis=0)"
    graph = m.graph(m.b.one(Concat(0), x, y))
    guarded = rule(*law, x2("x"), x2("y"), when=("shape(x) == shape(y)",))
    assert not rewrites(graph, guarded)
    chance = ("dim(x, 0) == dim(y, 0)",)
    assert not rewrites(graph, rule(*law, x2("x"), x2("y"), given=chance))
    assert rewrites(graph, rule(*law, x2("x"), x2("y")))


def test_a_false_type_is_refused() -> None:
    m = Make()
    x = m.x(2, 2)
    law = rule("relu(x)", "concat(x, x, axis=0)", x2("x"))
    assert not rewrites(m.graph(m.b.one(Relu(), x)), law)


def test_integers_and_other_ranks_do_not_match() -> None:
    law = rule("add(x, y)", "add(y, x)", x2("x"), x2("y"))
    for m, shape, dtype in ((Make(), (2, 2), i32), (Make(), (2, 2, 2), f32)):
        graph = m.graph(m.b.one(Add(), m.x(*shape, dtype=dtype), m.x(*shape, dtype=dtype)))
        assert not rewrites(graph, law)


def test_exact_numerics_use_exact_rules_only() -> None:
    m = Make()
    x = m.x(4, 6)
    w, v = m.w(6, 3), m.w(3, 5)
    graph = m.graph(m.b.one(MatMul(), m.b.one(MatMul(), x, w), v))
    assert any(r.numeric == "real" for r in rewrites(graph, *shipped()))
    assert all(r.numeric == "exact" for r in rewrites(graph, *shipped(), numerics="exact"))
    assert all(p.numeric == "exact" for p in Patterns(shipped(), "exact").all)


def test_cycles_are_refused() -> None:
    """h -> h @ w -> (h @ w) @ w: the two products share w, and one needs the other."""
    m = Make()
    h, w = m.x(1, 4), m.w(4, 4)
    first = m.b.one(MatMul(), h, w)
    second = m.b.one(MatMul(), m.b.one(Relu(), first), w)
    part = Part((h,), (first, second))
    assert not list(merge_rewrites(part))
    assert not [r for r in rewrites(m.graph(first, second), *shipped()) if len(r.old) == 2]
    b = NormalBuilder()
    both = b.results(
        Split(0, (1, 1)),
        b.results(MatMul(), b.results(Concat(0), h, b.results(Relu(), first)[0])[0], w)[0],
    )
    planted = Rewrite("planted", "exact", (first, second), both)
    assert not admit(part, planted)
    with pytest.raises(CycleError):
        applied(part, [planted])


def test_steps_that_do_not_need_each_other_are_put_together() -> None:
    m = Make()
    x, w = m.x(3, 1, 4), m.w(4, 4)
    rows = [m.b.one(Slice((n, 0, 0), (n + 1, 1, 4), (1, 1, 1)), x) for n in range(3)]
    graph = m.graph(*(m.b.one(MatMul(), r, w) for r in rows))
    found = [r for r in merge_rewrites(Part(graph.inputs, graph.outputs)) if len(r.old) == 3]
    products = [
        node
        for rewrite in found
        for node in assert_same(graph, rewrite).nodes
        if node.op.name == "matmul"
    ]
    assert len(products) == len(found)
    assert any(n.inputs[0] is x for n in products), "slices of all steps are the whole input"


# ---------------------------------------------------------------------------------- slices
def test_a_slice_moves_up_a_chain() -> None:
    m = Make()
    x, w = m.x(5, 4), m.w(4, 6)
    y = m.b.one(Relu(), m.b.one(MatMul(), x, w))
    graph = m.graph(m.b.one(Slice((0, 0), (1, 6), (1, 1)), y))
    (first,) = slice_rewrites(Part(graph.inputs, graph.outputs), alone=True)
    after = assert_same(graph, first)
    (second,) = slice_rewrites(Part(after.inputs, after.outputs), alone=True)
    last = assert_same(after, second)
    (product,) = (n for n in last.nodes if n.op.name == "matmul")
    assert product.results[0].tensor_type.shape == (1, 6)


# ------------------------------------------------------------------------------- normal form
def test_movement_has_one_form() -> None:
    b, m = NormalBuilder(), Make()
    x, y = m.x(4, 2), m.x(3, 2)
    joined = b.results(Concat(0), x, y)[0]
    assert b.results(Split(0, (4, 3)), joined) == (x, y)
    assert b.run(Run(joined, 0, 4, 7)) is y
    parts = b.results(Split(0, (1, 1, 2)), x)
    assert b.results(Concat(0), *parts)[0] is x
    pair = b.results(Concat(0), *parts[:2])[0]
    found = run_of(pair)
    assert found is not None
    assert (found.base, found.start, found.stop) == (x, 0, 2)
    inner = b.run(Run(parts[2], 0, 1, 2))
    found = run_of(inner)
    assert found is not None
    assert (found.base, found.start, found.stop) == (x, 3, 4)
    assert b.results(Concat(0), joined, x)[0].node.inputs == (x, y, x)  # type: ignore[attr-defined]


def test_constants_are_computed_when_asked_for() -> None:
    m = Make()
    w, v = m.w(3, 4), m.w(2, 4)
    (joined,) = compute_later(Concat(0), w, v)
    assert isinstance(joined, Computed)
    assert not joined.is_made
    assert joined is compute_later(Concat(0), w, v)[0]
    assert joined.tensor_type.shape == (5, 4)
    assert joined.is_finite
    assert not joined.is_made, "asking for it computes nothing"
    np.testing.assert_array_equal(joined.array, np.concatenate((w.array, v.array)))
    assert joined.is_made
    assert not joined.array.flags.writeable
    assert joined.digest == make_constant(joined.array).digest


def test_convolutions_of_one_input_become_one() -> None:
    m = Make()
    x = m.x(1, 4, 6, 6)
    graph = m.graph(*(m.b.one(PLAIN, x, m.w(c, 4, 3, 3)) for c in (2, 3)))
    (rewrite,) = merge_rewrites(Part(graph.inputs, graph.outputs))
    after = assert_same(graph, rewrite)
    assert sum(n.op.name == "conv" for n in after.nodes) == 1


def test_grouped_convolutions_are_not_put_together() -> None:
    m = Make()
    x = m.x(1, 4, 6, 6)
    grouped = Conv((1, 1), (1, 1, 1, 1), (1, 1), 2)
    graph = m.graph(*(m.b.one(grouped, x, m.w(c, 2, 3, 3)) for c in (2, 4)))
    assert not list(merge_rewrites(Part(graph.inputs, graph.outputs)))
