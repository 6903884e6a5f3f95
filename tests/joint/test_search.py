"""The search itself: queue, alpha, budgets, and prices of parts."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest

from tests.joint.toy_search import PARTS, Walk
from whet.build.backend import backend_of
from whet.core.caching import FileCache
from whet.core.config import CacheConfig
from whet.core.cpu import PRESETS
from whet.core.dtypes import DType, f16, f32
from whet.core.errors import InternalError
from whet.core.types import TensorType
from whet.frontend.onnx import import_model
from whet.graph.build import GraphBuilder
from whet.graph.graph import Graph
from whet.graph.passes import optimize
from whet.joint.blocks import cut_blocks, form_of, transplanted
from whet.joint.checking import TOLERANCE, check_part
from whet.joint.kept import Rewritten, cheaper_graph, shared_matcher
from whet.joint.moves import Moves
from whet.joint.pricing import part_price, part_steps, plan_whole
from whet.joint.recipe import follow_recipe, form_digest, write_recipe
from whet.joint.search import Budget, backtrack
from whet.joint.sums import sum_steps
from whet.ops.activation import Relu
from whet.ops.arithmetic import Add, Mul
from whet.ops.matmul import MatMul
from whet.schedule.prices import AnalyticPrice
from whet.superopt.apply.normal import NormalBuilder
from whet.superopt.apply.rewrite import Part, Rewrite, applied
from whet.tasks.steps import Step
from zoo.reduced import REDUCED

TARGET = PRESETS["x86-64-v4"]
HOLDS = backend_of(TARGET).holds


TOY = Walk(
    [10.0, 10.3, 10.6, 8.0, 12.0, 7.9, 9.0, 1.0],
    {0: [1, 4], 1: [2], 2: [3], 3: [6], 4: [7], 5: [], 6: [5], 7: []},
)


def test_steps_up_within_alpha_are_taken_and_others_are_not() -> None:
    found = backtrack(PARTS[0], TOY.steps, TOY.price, Budget(100, 10.0), alpha=1.07)
    assert found.best.part is PARTS[3]
    assert found.complete
    greedy = backtrack(PARTS[0], TOY.steps, TOY.price, Budget(100, 10.0), alpha=1.0)
    assert greedy.best is greedy.first
    wide = backtrack(PARTS[0], TOY.steps, TOY.price, Budget(100, 10.0), alpha=1.6)
    assert wide.best.part is PARTS[7]


def test_budgets_end_a_search() -> None:
    found = backtrack(PARTS[0], TOY.steps, TOY.price, Budget(3, 10.0), alpha=1.3)
    assert (found.states, found.complete) == (3, False)
    found = backtrack(PARTS[0], TOY.steps, TOY.price, Budget(100, -1.0), alpha=1.3)
    assert (found.states, found.complete) == (1, False)


# --------------------------------------------------------------------------------------- prices
def network(name: str) -> Graph:
    return optimize(import_model(REDUCED[name]()).graph)


@pytest.mark.parametrize("name", ["bert_base", "resnet50", "nasnet_a", "llama_prefill"])
def test_blocks_together_take_what_the_network_takes(name: str) -> None:
    """But for conversions at the model's edges, which belong to no block."""
    graph, prices = network(name), AnalyticPrice(TARGET, 2, "real")
    whole = plan_whole(graph, prices, HOLDS)
    assert whole is not None
    blocks = cut_blocks(whole)
    assert sum(len(b.part.nodes) for b in blocks) == len(graph.nodes)
    total = sum(part_price(b.part, b.places, b.part, prices) for b in blocks)
    assert total == pytest.approx(whole.seconds, rel=0.05)


def differences(name: str, blocks_of_it: int, rewrites: int) -> Iterator[tuple[float, float]]:
    """Random rewrites of blocks: what they change of the block's price, and of the network's."""
    graph, prices = network(name), AnalyticPrice(TARGET, 2, "real")
    whole = plan_whole(graph, prices, HOLDS)
    assert whole is not None
    rng = random.Random(3)
    blocks = cut_blocks(whole)
    for block in rng.sample(blocks, min(blocks_of_it, len(blocks))):
        form = form_of(block.part, block.places)
        found = list(Moves(shared_matcher("real"))(block.part))
        for _, part in rng.sample(found, min(rewrites, len(found))):
            before, after = (
                part_price(p, block.places, block.part, prices) for p in (block.part, part)
            )
            made = Rewrite("block", "real", block.given, transplanted(part, form, form, block))
            outputs = applied(Part(graph.inputs, graph.outputs), [made]).outputs
            changed = plan_whole(Graph(graph.inputs, outputs, graph.output_names), prices, HOLDS)
            assert changed is not None
            yield after - before, changed.seconds - whole.seconds


@pytest.mark.parametrize("name", ["bert_base", "vit_tiny", "llama_prefill", "mobilenet_v2"])
def test_the_difference_of_a_block_is_that_of_the_network(name: str) -> None:
    """But for layouts that the network would choose otherwise: a block keeps them at its edges."""
    found = list(differences(name, 3, 4))
    exact = [a for a, b in found if a == pytest.approx(b, rel=1e-6, abs=1e-12)]
    assert len(exact) >= 0.8 * len(found) > 0


def test_parts_of_a_new_concat_need_no_copy() -> None:
    """Two branches of NasNet that are added become one product of both: they are computed side by
    side, in the block's plan as in the network's."""
    graph, prices = network("nasnet_a"), AnalyticPrice(TARGET, 2, "real")
    whole = plan_whole(graph, prices, HOLDS)
    assert whole is not None
    checked = 0
    for block in cut_blocks(whole):
        for _, part in sum_steps(block.part, shared_matcher("real")):
            before, after = (
                part_steps(p, block.places, block.part, prices)[0] for p in (block.part, part)
            )
            copies = [
                sum(isinstance(s, Step) and s.name == "concat" for s in steps)
                for steps in (before, after)
            ]
            assert copies[0] == copies[1]
            checked += 1
    assert checked


# --------------------------------------------------------------------------------------- recipes
def two_products(seed: int, columns: int = 3) -> Graph:
    b, rng = GraphBuilder(), np.random.default_rng(seed)
    x = b.input("x", TensorType((4, 8), f32))
    made = [
        b.one(Relu(), b.one(MatMul(), x, b.constant(rng.standard_normal((8, n), np.float32))))
        for n in (columns, 5)
    ]
    return Graph((x,), tuple(made), ("a", "b"))


def test_a_recipe_makes_the_same_graph_of_other_weights() -> None:
    first, second = two_products(0), two_products(1)
    _, part = next(iter(Moves(None)(Part(first.inputs, first.outputs))))
    recipe = write_recipe(first, part.outputs)
    assert recipe is not None
    assert "constant" not in recipe, "weights are no part of it"
    made = follow_recipe(recipe, second)
    assert sum(n.op.name == "matmul" for n in made.nodes) == 1
    assert form_digest(first) == form_digest(second) != form_digest(two_products(0, columns=4))
    with pytest.raises(Exception, match="another graph"):
        follow_recipe(recipe, two_products(0, columns=4))


def test_what_was_found_is_kept(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    from whet.joint import kept

    searched = []

    def count(graph: Graph, *rest: object) -> Rewritten:
        searched.append(graph)
        return Rewritten(write_recipe(graph, graph.outputs), 2.0, 1.0, (), 7)

    monkeypatch.setattr(kept, "search", count)
    monkeypatch.setattr(kept, "_SEARCHED", {})
    cache = FileCache(CacheConfig(True, tmp_path / "cache", 100))
    for seed in range(3):
        _, found = cheaper_graph(two_products(seed), TARGET, 1, "real", cache, 1.0)
        assert found.states == 7
        kept._SEARCHED.clear()
    assert len(searched) == 1
    cheaper_graph(two_products(0), TARGET, 2, "real", cache, 1.0)
    assert len(searched) == 2, "another number of threads has other prices"


def test_a_rewrite_that_computes_something_else_raises_the_alarm() -> None:
    b = GraphBuilder()
    x, y = (b.input(name, TensorType((2, 3), f32)) for name in "xy")
    part = Part((x, y), (b.one(Add(), x, y),))
    right = Part((x, y), (b.one(Add(), y, x),))
    assert check_part(part, right, "add") == 0.0
    wrong = Part((x, y), (b.one(Add(), x, x),))
    with pytest.raises(InternalError, match="off by"):
        check_part(part, wrong, "planted")


@pytest.mark.parametrize("dtype", [f32, f16], ids=lambda t: t.name)
def test_weights_are_rounded_to_their_own_type(dtype: DType) -> None:
    """A scale that goes into weights changes them by what their type cannot hold; more is wrong."""
    b, later, rng = GraphBuilder(), NormalBuilder(), np.random.default_rng(0)
    x = b.input("x", TensorType((4, 64), dtype))
    weights = b.constant(rng.standard_normal((64, 8)).astype(dtype.numpy))
    scale = b.constant(np.asarray(0.3, dtype.numpy))
    scaled = later.results(Mul(), weights, scale)[0]
    part = Part((x,), (b.one(Mul(), b.one(MatMul(), x, weights), scale),))
    off = check_part(part, Part((x,), (b.one(MatMul(), x, scaled),)), "scale")
    assert (off > TOLERANCE) == (dtype is f16)
    twice = later.results(Mul(), scaled, scale)[0]
    with pytest.raises(InternalError, match="off by"):
        check_part(part, Part((x,), (b.one(MatMul(), x, twice),)), "planted")
