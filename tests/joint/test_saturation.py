"""Blocks of networks by equality saturation: the same numbers, and merges that must be found."""

from __future__ import annotations

import random
from functools import cache

import numpy as np
import pytest

from tests.joint.walks import CLOSE, differ, inputs_for
from whet.build.backend import backend_of
from whet.core.cpu import PRESETS
from whet.core.dtypes import f32
from whet.core.types import TensorType
from whet.frontend.onnx import import_model
from whet.graph.build import GraphBuilder
from whet.graph.graph import Input, Value
from whet.graph.passes import optimize
from whet.joint.blocks import Block, cut_blocks
from whet.joint.checking import check_part
from whet.joint.kept import Rewritten, rewritten_graph, search, shared_matcher, shared_patterns
from whet.joint.pricing import part_price, plan_whole
from whet.joint.saturation.engine import saturated_search
from whet.joint.saturation.surrogate import Alone
from whet.joint.search import Found
from whet.joint.superoptimize import Superoptimizer, engines_for
from whet.ops.activation import Relu
from whet.ops.arithmetic import Add
from whet.ops.conv import Conv
from whet.ops.matmul import MatMul
from whet.schedule.prices import AnalyticPrice
from whet.superopt.apply.rewrite import Part
from whet.superopt.saturate.problem import extraction, greedy
from whet.superopt.saturate.saturation import Limits, saturate
from zoo.reduced import REDUCED

TARGET = PRESETS["x86-64-v4"]
PRICE = AnalyticPrice(TARGET, 2, "real")
HOLDS = backend_of(TARGET).holds
LIMITS = Limits(nodes=250, rounds=4, seconds=120.0)


@cache
def blocks(name: str) -> tuple[Block, ...]:
    graph = optimize(import_model(REDUCED[name]()).graph)
    whole = plan_whole(graph, PRICE, HOLDS)
    assert whole is not None
    return tuple(cut_blocks(whole))


def saturated(block: Block, limits: Limits = LIMITS) -> Found:
    return saturated_search(block, shared_patterns("real").core, Alone(PRICE), limits)


def alone(part: Part) -> Block:
    return Block(part, part.inputs, part.outputs, {})


def count(part: Part, op: type) -> int:
    return sum(isinstance(node.op, op) for node in part.nodes)


@pytest.mark.parametrize("name", sorted(REDUCED))
def test_extracted_blocks_compute_the_same_and_cost_what_is_said(name: str) -> None:
    block = min(blocks(name), key=lambda b: abs(len(b.part.nodes) - 20))
    found = saturated(block)
    assert found.engine == "saturation"
    assert found.best.seconds <= found.first.seconds
    for state in (found.first, found.best):
        planned = part_price(state.part, block.places, block.part, PRICE)
        assert state.seconds == pytest.approx(planned)
    check_part(block.part, found.best.part, "saturation")


@pytest.mark.parametrize("name", ["bert_base", "inception_v3", "nasnet_a", "nasrnn", "resnext50"])
def test_whatever_is_extracted_computes_the_same(name: str) -> None:
    """With random costs in place of prices, any graph of the e-graph may be the cheapest."""
    block = min(blocks(name), key=lambda b: abs(len(b.part.nodes) - 25))
    graph = saturate(block.part, shared_patterns("real"), LIMITS).graph
    rng = random.Random(7)
    seen = set()
    for _ in range(6):
        costs = {node: rng.random() ** 3 for node in graph.nodes}
        found = extraction(graph, costs.__getitem__)
        choice = greedy(found.problem)
        assert choice is not None
        part, _ = found.part(choice)
        seen.add(part.outputs)
        check_part(block.part, part, "random costs")
    assert len(seen) > 1


def test_query_key_and_value_become_one_product() -> None:
    block = blocks("bert_base")[0]
    found = saturated(block)
    assert count(found.best.part, MatMul) == count(block.part, MatMul) - 2
    assert found.best.seconds < 0.95 * found.first.seconds
    assert "merge-matmul" in {r.rule for r in found.best.path}


def test_a_slice_goes_through_a_whole_layer() -> None:
    """The last layer is computed for the one token that is read, and products are merged."""
    found = saturated(blocks("bert_base")[1], Limits(seconds=60.0))
    assert any(r.rule == "slice-softmax" for r in found.best.path)
    assert found.best.seconds < 0.8 * found.first.seconds


# -------------------------------------------------------------------------------- known merges
def image(b: GraphBuilder) -> Input:
    return b.input("x", TensorType((1, 16, 12, 12), f32))


def filters(b: GraphBuilder, seed: int, *shape: int) -> Value:
    return b.constant(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def conv(b: GraphBuilder, x: Value, w: Value, pad: int) -> Value:
    return b.one(Conv((1, 1), (pad,) * 4, (1, 1)), x, w)


def test_parallel_pointwise_convolutions_become_one() -> None:
    b = GraphBuilder()
    x = image(b)
    made = [b.one(Relu(), conv(b, x, filters(b, n, 8, 16, 1, 1), 0)) for n in range(3)]
    part = Part((x,), tuple(made))
    found = saturated(alone(part))
    assert count(found.best.part, Conv) == 1
    check_part(part, found.best.part, "pointwise")


def test_a_sum_of_convolutions_becomes_one() -> None:
    b = GraphBuilder()
    x = image(b)
    sides = [conv(b, x, filters(b, n, 16, 16, 3, 3), 1) for n in range(2)]
    part = Part((x,), (b.one(Add(), *sides),))
    found = saturated(alone(part))
    assert [node.op.name for node in found.best.part.nodes] == ["conv"]
    check_part(part, found.best.part, "sum")


def test_a_product_of_low_rank_stays_and_a_wide_one_does_not() -> None:
    b = GraphBuilder()
    x = b.input("x", TensorType((64, 256), f32))
    wide = b.one(MatMul(), b.one(MatMul(), x, filters(b, 0, 256, 256)), filters(b, 1, 256, 256))
    low = b.one(MatMul(), b.one(MatMul(), x, filters(b, 2, 256, 4)), filters(b, 3, 4, 256))
    for made, wanted in ((wide, 1), (low, 2)):
        part = Part((x,), (made,))
        found = saturated(alone(part))
        assert count(found.best.part, MatMul) == wanted
        check_part(part, found.best.part, "associate")


def test_without_time_the_block_stays() -> None:
    block = blocks("bert_base")[0]
    found = saturated(block, Limits(seconds=0.0))
    assert found.best is found.first
    assert not found.complete


def test_a_search_says_which_engine_has_won() -> None:
    graph = optimize(import_model(REDUCED["bert_base"]()).graph)
    matcher = lambda: shared_matcher("real")
    searching = Superoptimizer(PRICE, HOLDS, matcher, 60.0, engines=("saturation",))
    found = searching.run(graph)
    assert found is not None
    assert found.after < 0.8 * found.before
    blockwise = [a for a in found.applied if a.engine == "saturation"]
    assert blockwise, "what the whole graph gives is not found block by block"
    assert all(a.rules and a.after < a.before for a in blockwise)


def test_long_searches_use_both_engines() -> None:
    assert engines_for(2.0) == ("backtracking",)
    assert engines_for(60.0) == ("backtracking", "saturation")


def test_what_a_long_search_finds_computes_the_same() -> None:
    graph = optimize(import_model(REDUCED["bert_base"]()).graph)
    found = search(graph, TARGET, 2, "real", 20.0)
    assert found.after < found.before
    assert {t.engine for t in found.taken} <= {"backtracking", "saturation"}
    made = rewritten_graph(graph, found)
    arrays = inputs_for(graph, np.random.default_rng(5))
    assert differ(graph, made, arrays) <= CLOSE
    assert Rewritten.read(found.write()) == found
