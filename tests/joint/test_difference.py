"""The difference of two graphs: as small as it is, and no smaller; errors; names; pictures."""

from __future__ import annotations

import random
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable

import numpy as np
import pytest

from tests.joint.walks import walk
from whet.core.dtypes import f32, i64
from whet.core.types import TensorType
from whet.frontend.onnx import import_model
from whet.graph.build import GraphBuilder
from whet.graph.graph import Graph, Node, Result, Value
from whet.graph.passes import optimize
from whet.joint.difference import carried_names, compared, difference
from whet.joint.explain import explained, rule_use
from whet.joint.kept import Rewritten, Taken
from whet.joint.recipe import write_recipe
from whet.joint.region_svg import HEIGHT, MOST_ALIKE, WIDTH, Box, collapsed, draw, layout
from whet.ops.activation import Relu
from whet.ops.arithmetic import Abs, Add, Exp, Neg
from whet.ops.matmul import MatMul
from whet.ops.movement import Concat, Slice, Split
from zoo.reduced import REDUCED

FIRST = Slice((0, 0), (1, 4), (1, 1))
Build = Callable[[GraphBuilder, Value], tuple[Value, ...]]


def graph(build: Build, shape: tuple[int, ...] = (3, 4)) -> Graph:
    b = GraphBuilder()
    x = b.input("x", TensorType(shape, f32))
    outputs = build(b, x)
    return Graph((x,), outputs, tuple(f"y{n}" for n in range(len(outputs))))


def names(nodes: tuple[Node, ...]) -> list[str]:
    return [node.op.name for node in nodes]


def test_what_is_the_same_is_no_part_of_it() -> None:
    before = graph(lambda b, x: (b.one(Neg(), b.one(FIRST, b.one(Relu(), b.one(Neg(), x)))),))
    after = graph(lambda b, x: (b.one(Neg(), b.one(Relu(), b.one(FIRST, b.one(Neg(), x)))),))
    found = compared(before, after)
    assert names(found.difference.before) == ["relu", "slice"]
    assert names(found.difference.after) == ["slice", "relu"]
    assert [str(v.type) for v in found.difference.entries] == ["f32[3, 4]"]
    assert len(found.difference.ends) == 1
    assert found.error == 0
    assert compared(before, before).difference.before == ()


def test_what_a_change_rests_on_is_part_of_it() -> None:
    """The outer relu does nothing, but only because the inner one is a relu."""
    before = graph(lambda b, x: (b.one(Relu(), b.one(Relu(), b.one(Neg(), x))),))
    after = graph(lambda b, x: (b.one(Relu(), b.one(Neg(), x)),))
    found = compared(before, after)
    assert found.error == 0
    assert names(found.difference.before) == ["relu", "relu"]
    assert names(found.difference.after) == ["relu"]


def test_twins_that_do_not_agree_are_part_of_it() -> None:
    """From the outputs on, both begin with a relu, but of values with other signs."""
    before = graph(lambda b, x: (b.one(Exp(), b.one(Relu(), b.one(Abs(), b.one(Neg(), x)))),))
    after = graph(lambda b, x: (b.one(Exp(), b.one(Relu(), b.one(Neg(), b.one(Neg(), x)))),))
    assert compared(before, after).error > 0.01  # they are not equal, wherever one looks
    swapped = graph(lambda b, x: (b.one(Exp(), b.one(Abs(), b.one(Relu(), b.one(Abs(), x)))),))
    equal = graph(lambda b, x: (b.one(Exp(), b.one(Abs(), b.one(Abs(), x))),))
    found = compared(swapped, equal)
    assert found.error == 0
    assert "exp" not in names(found.difference.before)


def test_graphs_that_differ_in_meaning_have_an_error() -> None:
    before = graph(lambda b, x: (b.one(Relu(), x),))
    after = graph(lambda b, x: (b.one(Neg(), x),))
    assert compared(before, after).error > 0.1
    kinds = (TensorType((2,), f32), TensorType((2,), i64))
    b = GraphBuilder()
    floats, integers = (b.input(f"{t}", t) for t in kinds)
    both = (floats, integers)
    wrong = [Graph(both, (b.one(Neg(), v), integers), ("a", "b")) for v in (floats, integers)]
    assert compared(*wrong).error == np.inf


def test_constants_tell_operators_apart() -> None:
    """A product with another weight is another product, not a twin."""
    w, v = (np.full((4, 4), c, np.float32) for c in (1, 2))
    before, after = (
        graph(lambda b, x, c=c: (b.one(Neg(), b.one(MatMul(), b.one(Neg(), x), b.constant(c))),))  # type: ignore[misc]
        for c in (w, v)
    )
    found = difference(before, after)
    assert names(found.before) == names(found.after) == ["matmul"]


def merged(b: GraphBuilder, x: Value, count: int) -> tuple[Value, ...]:
    parts = tuple(Slice((n, 0), (n + 1, 4), (1, 1)) for n in range(count))
    cut = [b.one(part, x) for part in parts]
    whole = b.one(Relu(), b.one(Concat(0), *cut))
    return b.results(Split(0, (1,) * count), whole)


def apart(b: GraphBuilder, x: Value, count: int) -> tuple[Value, ...]:
    return tuple(b.one(Relu(), b.one(Slice((n, 0), (n + 1, 4), (1, 1)), x)) for n in range(count))


def test_places_that_have_nothing_to_do_with_each_other() -> None:
    def build(first: Build, second: Build) -> Build:
        return lambda b, x: (*first(b, x), *second(b, b.one(Neg(), x)))

    one, two = (lambda b, x, f=f: f(b, x, 3) for f in (apart, merged))  # type: ignore[misc]
    found = compared(graph(build(one, one)), graph(build(two, two)))
    assert found.error == 0
    places = found.difference.components()
    assert [names(p.before) for p in places] == [["relu"] * 3] * 2
    assert all(len(p.ends) == 3 for p in places)


def test_names_follow_the_nodes() -> None:
    before = graph(lambda b, x: tuple(b.one(Neg(), v) for v in apart(b, x, 3)))
    after = graph(lambda b, x: tuple(b.one(Neg(), v) for v in merged(b, x, 3)))
    given = {node: f"{node.op.name}{n}" for n, node in enumerate(before.nodes)}
    found = compared(before, after)
    carried = carried_names(found.difference, given)
    shown = [carried.get(node) for node in after.nodes if node.op.name in ("relu", "neg")]
    relus = [name for name in given.values() if name.startswith("relu")]
    negs = [name for name in given.values() if name.startswith("neg")]
    assert shown == [f"{relus[0]} + 2", *negs]


@pytest.mark.parametrize("name", ["bert_base", "squeezenet", "nasrnn", "llama_prefill"])
@pytest.mark.parametrize("seed", range(2))
def test_random_rewrites_agree_where_they_end(name: str, seed: int) -> None:
    start = optimize(import_model(REDUCED[name]()).graph)
    made, rules = walk(start, None, random.Random(seed), 4)
    found = compared(start, made, seed)
    assert found.error < 1e-6, rules
    inside = {*found.difference.before}
    assert inside <= {*start.nodes}
    kept = {*found.difference.twins.values()}
    common = {*start.nodes} & {*made.nodes}
    assert inside | kept | common == {*start.nodes}
    root = ElementTree.fromstring(draw(found.difference, start.names, {}))
    assert root.tag.endswith("svg")


# -------------------------------------------------------------------------------------- pictures
def test_text_is_escaped() -> None:
    b = GraphBuilder()
    x = b.input('a<b>&"c"', TensorType((2,), f32))
    before, after = b.one(Neg(), b.one(Neg(), x)), b.one(Add(), x, x)
    sides = [Graph((x,), (v,), ("y",)) for v in (before, after)]
    assert isinstance(after, Result)
    found = difference(*sides)
    text = draw(found, {}, {after.node: "<script>&"})
    root = ElementTree.fromstring(text)
    assert "<script" not in text
    shown = [e.text for e in root.iter() if e.text]
    assert 'a<b>&"c"' in shown
    assert any(t.startswith("<script>&: add") for t in shown)


def test_boxes_do_not_overlap_and_lie_below_what_they_read() -> None:
    rng = random.Random(0)
    for _ in range(50):
        boxes = [
            Box(f"b{n}", "", tuple(sorted(rng.sample(range(n), min(n, rng.randrange(3))))), True)
            for n in range(rng.randrange(1, 30))
        ]
        places = layout(boxes)
        for box, (_, y) in zip(boxes, places):
            assert all(places[n][1] + HEIGHT < y for n in box.reads)
        for n, (x, y) in enumerate(places):
            for left, top in places[:n]:
                assert abs(left - x) >= WIDTH or abs(top - y) >= HEIGHT


def test_many_boxes_that_are_alike_become_few() -> None:
    source = Box("x", "", (), False)
    many = [Box(f"relu {n}", "f32[1]", (0,), True, "relu") for n in range(20)]
    end = Box("concat", "f32[20]", tuple(range(1, 21)), True, "concat")
    made = collapsed([source, *many, end])
    assert [box.first for box in made] == [
        "x", "relu 0", "relu 1", "relu 2", "17 more: relu", "concat",
    ]  # fmt: skip
    assert made[-1].reads == tuple(range(1, MOST_ALIKE + 1))
    assert [box.reads for box in made[1:-1]] == [(0,)] * MOST_ALIKE


# ----------------------------------------------------------------------------------------- rules
def test_generated_rules_say_their_laws_and_direction() -> None:
    use = rule_use("relu-concat-206445d7", 2)
    assert use.statement == "relu(concat(x, y, axis=2))  ->  concat(relu(x), relu(y), axis=2)"
    assert use.source == "generated"
    assert use.numeric == "exact"
    assert [line.partition(":")[0] for line in use.proof] == ["relu.8910b4f2"]
    assert "relu(" in use.proof[0]
    back = rule_use("relu-concat-206445d7, backward", 1)
    assert back.statement == "concat(relu(x), relu(y), axis=2)  ->  relu(concat(x, y, axis=2))"


def test_steps_follow_each_other() -> None:
    """Names are those of the model, also where a step replaces what another one has made."""
    x = GraphBuilder().input("x", TensorType((2, 3, 4), f32))

    def made(build: Callable[[GraphBuilder], Value]) -> Graph:
        return Graph((x,), (build(GraphBuilder()),), ("y",))

    first = made(lambda b: b.one(Relu(), b.one(Concat(2), x, b.one(Neg(), x))))
    second = made(lambda b: b.one(Concat(2), b.one(Relu(), x), b.one(Relu(), b.one(Neg(), x))))
    named = {node: f"/model/{node.op.name}" for node in first.nodes}
    start = Graph(first.inputs, first.outputs, first.output_names, named)
    there, back = (write_recipe(start, g.outputs) for g in (second, first))
    taken = (
        Taken({"relu-concat-206445d7": 1}, 1, 3e-3, 2e-3, there),
        Taken({"relu-concat-206445d7, backward": 1}, 4, 2e-3, 1e-3, back),
    )
    one, two = explained(start, Rewritten(back, 3e-3, 1e-3, taken, 9))
    assert one.nodes == ("/model/concat", "/model/relu")
    assert (one.places, one.before, one.after, one.numeric) == (1, 3e-3, 2e-3, "exact")
    assert names(one.difference.after) == ["relu", "relu", "concat"]
    assert two.nodes == ("/model/concat",)
    assert two.places == 4
    assert two.uses[0].statement.startswith("concat(relu(x), relu(y), axis=2)  ->  ")
    assert one.error == two.error == 0
