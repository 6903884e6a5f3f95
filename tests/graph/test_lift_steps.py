"""Scans after work was moved out of their bodies: the same results, and what is where."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.graph.meaning import assert_same_meaning, f, operators
from whet.core.dtypes import bool_, i64
from whet.core.types import TensorType
from whet.graph.body import close_body, fresh_inputs
from whet.graph.build import GraphBuilder
from whet.graph.graph import Graph, Value, make_input
from whet.graph.interpret import interpret
from whet.graph.passes import lift_steps
from whet.graph.passes.steps.kinds import FREE_BYTES
from whet.graph.passes.steps.lifting import lift
from whet.graph.rewrite import body_graph, everywhere
from whet.ops import REGISTRY
from whet.ops.base import Numeric, Op, Sample
from whet.ops.branch import Branch
from whet.ops.scan import Scan
from whet.ops.shared.control import Control

LENGTH = 5
Step = Callable[..., Sequence[Value]]


def op(name: str, **attributes: Any) -> Op:
    return REGISTRY[name](**attributes)


def do(name: str, *values: Value, **attributes: Any) -> Value:
    return GraphBuilder().one(op(name, **attributes), *values)


def scan_graph(
    step: Step,
    *,
    states: Sequence[TensorType] = (),
    slices: Sequence[TensorType] = (),
    wholes: Sequence[TensorType] = (),
    initial: Sequence[Value] | None = None,
    length: int = LENGTH,
    input_axes: Sequence[int] | None = None,
    output_axes: Sequence[int] = (),
    reverse_inputs: Sequence[bool] = (),
    reverse_outputs: Sequence[bool] = (),
) -> Graph:
    """A scan over inputs of the graph; a body's own constants are passed in."""
    b = GraphBuilder()
    axes = tuple(input_axes or (0,) * len(slices))
    stacked = [t.with_shape((*t.shape[:a], length, *t.shape[a:])) for t, a in zip(slices, axes)]
    given = [b.input(f"v{n}", t) for n, t in enumerate((*states, *stacked, *wholes))]
    own = fresh_inputs((*states, *slices, *wholes))
    body, outside = close_body(own, step(*own))
    scan = Scan(body, length, len(states), axes, tuple(output_axes), tuple(reverse_inputs),
                tuple(reverse_outputs))  # fmt: skip
    values = [*(initial if initial is not None else given[: len(states)]), *given[len(states) :]]
    results = b.results(scan, *values, *outside)
    return Graph(tuple(given), results, tuple(f"y{n}" for n in range(len(results))))


def inside(graph: Graph) -> list[str]:
    """The operators in the body of the only scan."""
    (scan,) = (n.op for n in graph.nodes if isinstance(n.op, Scan))
    return operators(body_graph(scan.body))


def lifted(graph: Graph, numerics: Numeric = "real") -> Graph:
    """The graph after the pass, which has kept its meaning and finds nothing more to do."""
    after = everywhere(lambda g: lift_steps(g, numerics))(graph)
    assert_same_meaning(graph, after, exact=numerics == "exact")
    again = everywhere(lambda g: lift_steps(g, numerics))(after)
    assert again.outputs == after.outputs
    return after


# -------------------------------------------------------------------------------- single cases
def rnn(h: Value, x: Value, w: Value, u: Value) -> tuple[Value, ...]:
    total = do("add", do("matmul", x, w), do("matmul", h, u))
    return (do("tanh", total), do("tanh", total))


RNN = {"states": [f(2, 4)], "slices": [f(2, 3)], "wholes": [f(3, 4), f(4, 4)]}


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("backward", [False, True])
def test_a_product_of_the_input_is_one_before_the_scan(axis: int, backward: bool) -> None:
    before = scan_graph(
        rnn, **RNN, input_axes=[axis], output_axes=[axis], reverse_inputs=[backward],
        reverse_outputs=[not backward],
    )  # fmt: skip
    after = lifted(before)
    assert sorted(inside(after)) == ["add", "matmul", "tanh"]
    assert [n for n in operators(after) if n != "transpose"] == ["matmul", "scan"]
    assert operators(after).count("transpose") == (axis != 0)
    (product,) = (n for n in after.nodes if n.op.name == "matmul")
    assert product.results[0].tensor_type == f(LENGTH, 2, 4)


def test_exact_numerics_keep_sums_where_they_are() -> None:
    before = scan_graph(rnn, **RNN, output_axes=[0])
    assert lift_steps(before, "exact").outputs == before.outputs

    def step(h: Value, x: Value, w: Value) -> tuple[Value, ...]:
        return (do("add", h, do("matmul", x, w)),)

    shapes = {"states": (2, 4), "slices": (2, 3), "wholes": (3, 4)}
    whole = {k: [TensorType(shape, i64)] for k, shape in shapes.items()}
    assert operators(lifted(scan_graph(step, **whole), "exact")) == ["matmul", "scan"]


def test_products_that_feed_no_state_run_behind_the_scan() -> None:
    def step(h: Value, x: Value, u: Value, v: Value) -> tuple[Value, ...]:
        new = do("tanh", do("add", x, do("matmul", h, u)))
        return new, do("softmax", do("add", do("matmul", do("relu", new), v), x), axis=1)

    before = scan_graph(
        step, states=[f(1, 4)], slices=[f(1, 4)], wholes=[f(4, 4), f(4, 4)], output_axes=[1],
        reverse_inputs=[True],
    )  # fmt: skip
    after = lifted(before)
    assert sorted(inside(after)) == ["add", "matmul", "relu", "tanh"]
    assert operators(after)[:2] == ["scan", "matmul"]
    assert "softmax" in operators(after)
    assert lift_steps(before, "exact").outputs == before.outputs


def test_small_matrices_do_not_pay_behind_the_scan() -> None:
    def step(h: Value, v: Value) -> tuple[Value, ...]:
        new = do("tanh", h)
        return new, do("matmul", new, v)

    before = scan_graph(step, states=[f(64, 4)], wholes=[f(4, 2)], output_axes=[0])
    assert lift_steps(before).outputs == before.outputs


def test_a_value_that_the_state_needs_stays() -> None:
    def step(h: Value, u: Value) -> tuple[Value, ...]:
        product = do("matmul", h, u)
        return do("tanh", product), product

    before = scan_graph(step, states=[f(1, 4)], wholes=[f(4, 4)], output_axes=[0])
    assert lift_steps(before).outputs == before.outputs


def test_what_is_the_same_in_all_steps_is_computed_once() -> None:
    def step(h: Value, w: Value) -> tuple[Value, ...]:
        return (do("add", h, do("exp", do("transpose", w, perm=(1, 0)))),)

    after = lifted(scan_graph(step, states=[f(3, 2)], wholes=[f(2, 3)]), "exact")
    assert inside(after) == ["add"]
    assert operators(after) == ["transpose", "exp", "scan"]


def test_scans_without_states_are_gone() -> None:
    def step(x: Value, y: Value, w: Value) -> tuple[Value, ...]:
        return do("add", do("mul", x, w), y), x, w, y

    before = scan_graph(
        step, slices=[f(3), f(2, 3)], wholes=[f(3)], input_axes=[1, 2], output_axes=[2, 0, 1, 0],
        reverse_inputs=[True, False], reverse_outputs=[False, False, True, True],
    )  # fmt: skip
    after = lifted(before, "exact")
    assert "scan" not in operators(after)


def test_neither_data_movement_nor_cheap_arithmetic_moves() -> None:
    def step(h: Value, x: Value) -> tuple[Value, ...]:
        turned = do("transpose", do("add", x, x), perm=(1, 0))
        return (do("add", h, turned),)

    before = scan_graph(step, states=[f(3, 2)], slices=[f(2, 3)])
    assert lift_steps(before).outputs == before.outputs

    def behind(h: Value, x: Value, w: Value) -> tuple[Value, ...]:
        return (do("add", h, do("expand", do("matmul", x, w), shape=(8, 4))),)

    after = lifted(scan_graph(behind, states=[f(8, 4)], slices=[f(1, 3)], wholes=[f(3, 4)]))
    assert operators(after) == ["matmul", "scan"]
    assert inside(after) == ["expand", "add"]


def test_elementwise_work_stays_where_its_operands_are() -> None:
    """A kernel of the body has them at hand; outside, every result would be stored."""

    def gates(h: Value, x: Value) -> tuple[Value, ...]:
        gate = do("sigmoid", x)
        new = do("add", do("mul", h, gate), do("softmax", x, axis=1))
        return new, do("neg", gate)

    before = scan_graph(gates, states=[f(2, 3)], slices=[f(2, 3)], output_axes=[0])
    assert lift_steps(before).outputs == before.outputs

    def product(h: Value, x: Value, w: Value, b: Value) -> tuple[Value, ...]:
        z = do("add", do("matmul", x, w), b)
        return (do("add", do("mul", h, do("sigmoid", z)), do("tanh", z)),)

    types = {"states": [f(1, 4)], "slices": [f(1, 3)], "wholes": [f(3, 4), f(4)]}
    after = lifted(scan_graph(product, **types))
    assert operators(after) == ["matmul", "add", "scan"]
    assert sorted(inside(after)) == ["add", "mul", "sigmoid", "tanh"]


@pytest.mark.parametrize(("rows", "columns", "moves"), [(1, 4, True), (3, 4, False), (1, 1, False)])
def test_a_product_pays_if_its_matrix_is_the_largest(rows: int, columns: int, moves: bool) -> None:
    def step(h: Value, x: Value, w: Value) -> tuple[Value, ...]:
        return (do("add", h, do("matmul", x, w)),)

    before = scan_graph(step, states=[f(rows, columns)], slices=[f(rows, 3)],
                        wholes=[f(3, columns)])  # fmt: skip
    assert ("matmul" in operators(lifted(before))) == moves


@pytest.mark.parametrize(("columns", "moved"), [(2000, 2), (2560, 1), (8192, 0)])
def test_memory_does_not_explode(columns: int, moved: int) -> None:
    """All results together must fit: both, one or none of two products."""
    length = 4096
    assert length * 2000 * 4 * 2 < FREE_BYTES < length * 2560 * 4 * 2
    assert length * 2560 * 4 < FREE_BYTES < length * 8192 * 4

    def step(h: Value, x: Value, v: Value, w: Value) -> tuple[Value, ...]:
        return (do("add", do("mul", h, do("matmul", x, v)), do("matmul", x, w)),)

    matrix, row = f(2, columns), f(1, columns)
    after = lift_steps(
        scan_graph(step, states=[row], slices=[f(1, 2)], wholes=[matrix, matrix], length=length)
    )
    assert operators(after).count("matmul") == moved
    assert inside(after).count("matmul") == 2 - moved


def test_counters_are_known() -> None:
    """The rows that a loop picks by its counter are the rows of a scan."""

    def step(n: Value, h: Value, x: Value, w: Value) -> tuple[Value, ...]:
        row = do("gather", x, n, axis=0)
        one = GraphBuilder().constant(np.int64(1))
        return do("add", n, one), do("tanh", do("add", h, do("matmul", row, w)))

    number = TensorType((), i64)
    before = scan_graph(
        step, states=[number, f(2, 4)], wholes=[f(LENGTH, 2, 3), f(3, 4)],
        initial=[GraphBuilder().constant(np.int64(0)), GraphBuilder().input("v1", f(2, 4))],
    )  # fmt: skip
    after = lifted(before)
    assert operators(after) == ["matmul", "scan"]
    assert inside(after) == ["add", "tanh"]
    (last,) = interpret(Graph((), after.outputs[:1], ("n",)), ())
    assert last == LENGTH


def test_random_numbers_are_drawn_in_every_step() -> None:
    noise = op("random_normal", shape=(3,), seed=1, dtype=f().dtype, mean=0.0, scale=1.0)
    row = f(3)

    def step(h: Value, x: Value) -> tuple[Value, ...]:
        drawn = GraphBuilder().one(noise)
        return (do("add", h, do("exp", do("add", x, drawn))),)

    before = scan_graph(step, states=[row], slices=[row])
    assert lift_steps(before).outputs == before.outputs
    hidden = Branch(*(close_body((x,), (do("add", x, GraphBuilder().one(noise)),))[0]
                      for x in [fresh_inputs((row,))[0]] * 2))  # fmt: skip

    def nested(h: Value, flag: Value, w: Value) -> tuple[Value, ...]:
        return (do("add", h, GraphBuilder().one(hidden, flag, w)),)

    before = scan_graph(nested, states=[row], wholes=[TensorType((), bool_), row])
    assert lift_steps(before).outputs == before.outputs


def test_nested_scans() -> None:
    """What leaves the inner body depends on no state of the outer one, so it leaves that too."""
    b = GraphBuilder()

    def inner(h: Value, x: Value, w: Value, u: Value) -> tuple[Value, ...]:
        return (do("tanh", do("add", do("matmul", x, w), do("matmul", h, u))),)

    types = (f(1, 8), f(1, 8), f(8, 8), f(8, 8))
    scan = Scan(b.body(types, inner), 3, 1, (0,))

    def outer(h: Value, x: Value, w: Value, u: Value) -> tuple[Value, ...]:
        return (b.one(scan, h, x, w, u),)

    before = scan_graph(outer, states=[f(1, 8)], slices=[f(3, 1, 8)], wholes=[f(8, 8), f(8, 8)])
    after = lifted(before)
    assert operators(after) == ["matmul", "scan"]
    assert inside(after) == ["scan"]


# --------------------------------------------------------------------------------- all operators
RNGS = [np.random.default_rng(n) for n in range(4)]
SAMPLES = [
    pytest.param(sample, id=f"{name}-{n}")
    for name, cls in sorted(REGISTRY.items())
    if not issubclass(cls, Control) and not cls.host and cls.deterministic
    for n, sample in enumerate((*cls.samples(), *(cls.sample(rng) for rng in RNGS)))
    if sample.types
]  # fmt: skip


@pytest.mark.parametrize("sample", SAMPLES)
def test_lifted_operators_do_what_the_steps_do(sample: Sample) -> None:
    """Every way of giving an operator slices and whole values, as long as it has a lifted form."""
    rng = np.random.default_rng(11)
    count = len(sample.types)
    for number in range(1, 1 << min(count, 3)):
        stepped = tuple(bool(number >> n & 1) for n in range(count))
        found = lift(sample.op, sample.types, stepped, 3)
        if found is None:
            continue
        rounds = [sample.arrays(rng) for _ in range(3)]
        arrays = []
        for n, (is_stepped, axes) in enumerate(zip(stepped, found.inserted)):
            if not is_stepped:
                arrays.append(rounds[0][n])
                continue
            stack = np.stack([r[n] for r in rounds])
            arrays.append(stack.reshape(3, *(1,) * axes, *stack.shape[1:]))
        got = found.op.run_reference(tuple(arrays))
        for t, own in enumerate(rounds):
            step = (own[n] if s else rounds[0][n] for n, s in enumerate(stepped))
            for whole, wanted in zip(got, sample.op.run_reference(tuple(step)), strict=True):
                np.testing.assert_allclose(
                    whole[t].astype(np.float64), wanted.astype(np.float64), rtol=1e-3, atol=1e-3
                )


@pytest.mark.parametrize("name", sorted(n for n, c in REGISTRY.items() if issubclass(c, Control)))
@pytest.mark.parametrize("numerics", ["real", "exact"])
def test_samples_of_control_flow_keep_their_meaning(name: str, numerics: Numeric) -> None:
    rng = np.random.default_rng(4)
    cls = REGISTRY[name]
    for sample in (*cls.samples(), *(cls.sample(rng) for _ in range(8))):
        inputs = tuple(make_input(f"x{n}", t) for n, t in enumerate(sample.types))
        results = GraphBuilder().results(sample.op, *inputs)
        graph = Graph(inputs, results, tuple(f"y{n}" for n in range(len(results))))
        after = everywhere(lambda g: lift_steps(g, numerics))(graph)
        arrays = sample.arrays(rng)
        for got, want in zip(interpret(after, arrays), interpret(graph, arrays), strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("name", "types", "attributes", "shifted"),
    [
        ("softmax", [f(2, 3)], {"axis": 1}, {"axis": 2}),
        ("transpose", [f(2, 3)], {"perm": (1, 0)}, {"perm": (0, 2, 1)}),
        ("reduce_sum", [f(2, 3)], {"axes": (0,)}, {"axes": (1,)}),
        ("reshape", [f(2, 3)], {"shape": (6,)}, {"shape": (4, 6)}),
        ("layer_norm", [f(2, 3), f(3), f(3)], {"axis": 1}, {"axis": 2}),
        ("matmul", [f(2, 3), f(3, 4)], {}, {}),
        ("einsum", [f(2, 3), f(3, 4)], {"equation": "ij,jk->ik"}, None),
        ("concat", [f(2, 3), f(2, 1)], {"axis": 1}, None),
    ],
)
def test_attributes_of_lifted_operators(
    name: str, types: list[TensorType], attributes: dict[str, Any], shifted: dict[str, Any] | None
) -> None:
    stepped = (True, *(False,) * (len(types) - 1))
    found = lift(op(name, **attributes), tuple(types), stepped, 4)
    wanted = None if shifted is None else op(name, **shifted)
    assert (None if found is None else found.op) == wanted


# --------------------------------------------------------------------------------- random bodies
UNARY = ["exp", "relu", "neg", "sigmoid", "tanh"]
BINARY = ["add", "mul", "maximum", "sub"]


def random_step(data: st.DataObject, values: list[Value]) -> Value:
    """One more value from those that are there; all have 3 columns at most."""
    kind = data.draw(st.sampled_from(["unary", "binary", "matmul", "along", "turn", "split"]))
    x = data.draw(st.sampled_from(values))
    shape = x.tensor_type.shape
    if kind == "unary":
        return do("tanh", do(data.draw(st.sampled_from(UNARY)), x))
    if kind == "binary":
        rows = {shape[-2], 1} if len(shape) == 2 else {1, 2, 3}
        fitting = [v for v in values if shape == (1, 3) or {*v.tensor_type.shape[:-1]} <= rows]
        y = data.draw(st.sampled_from(fitting))
        return do("tanh", do(data.draw(st.sampled_from(BINARY)), x, y))
    square = [v for v in values if v.tensor_type.shape == (3, 3)]
    if kind == "matmul" and len(shape) == 2 and shape[1] == 3 and square:
        return do("tanh", do("matmul", x, data.draw(st.sampled_from(square))))
    if kind == "along" and shape:
        axis = data.draw(st.integers(0, len(shape) - 1))
        name = data.draw(st.sampled_from(["softmax", "reduce_max", "reduce_sum", "log_softmax"]))
        attributes = {"axis": axis} if "softmax" in name else {"axes": (axis,), "keepdims": True}
        return do("tanh", do(name, x, **attributes))
    if kind == "turn" and shape == (3, 3):
        return do("transpose", x, perm=(1, 0))
    if kind == "split" and shape and shape[-1] == 3:
        parts = GraphBuilder().results(op("split", axis=len(shape) - 1, sizes=(1, 2)), x)
        return do("concat", *reversed(parts), axis=len(shape) - 1)
    return do("relu", x)


@pytest.mark.parametrize("numerics", ["real", "exact"])
@settings(max_examples=150, deadline=None)
@given(st.data())
def test_random_scans_keep_their_meaning(numerics: Numeric, data: st.DataObject) -> None:
    shapes = st.sampled_from([f(2, 3), f(3, 3), f(3), f(1, 3), f()])
    states, slices, wholes = (
        data.draw(st.lists(shapes, min_size=low, max_size=high))
        for low, high in ((0, 2), (0, 3), (0, 2))
    )
    axes = [data.draw(st.integers(0, t.rank)) for t in slices]
    length = data.draw(st.integers(2, 4))
    outputs: list[int] = []

    def step(*own: Value) -> Sequence[Value]:
        values = list(own) or [GraphBuilder().constant(np.ones(3, np.float32))]
        for _ in range(data.draw(st.integers(0, 9))):
            values.append(random_step(data, values))
        new = []
        for t in states:
            fitting = [v for v in values if v.type == t]
            new.append(data.draw(st.sampled_from(fitting)))
        given = data.draw(st.lists(st.sampled_from(values), min_size=not states, max_size=3))
        outputs.extend(data.draw(st.integers(0, v.tensor_type.rank)) for v in given)
        return (*new, *given)

    own = fresh_inputs((*states, *slices, *wholes))
    body, outside = close_body(own, step(*own))
    b = GraphBuilder()
    stacked = [t.with_shape((*t.shape[:a], length, *t.shape[a:])) for t, a in zip(slices, axes)]
    inputs = tuple(b.input(f"v{n}", t) for n, t in enumerate((*states, *stacked, *wholes)))
    flags = st.booleans()
    scan = Scan(body, length, len(states), tuple(axes), tuple(outputs),
                tuple(data.draw(flags) for _ in axes), tuple(data.draw(flags) for _ in outputs),
                )  # fmt: skip
    results = b.results(scan, *inputs, *outside)
    graph = Graph(inputs, results, tuple(f"y{n}" for n in range(len(results))))
    lifted(graph, numerics)
