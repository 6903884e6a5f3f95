"""Blocks of networks by equality saturation: the same numbers, and merges that must be found."""

from __future__ import annotations

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
from whet.graph.graph import Graph, Input
from whet.graph.passes import optimize
from whet.joint.blocks import Block, cut_blocks
from whet.joint.checking import check_part
from whet.joint.kept import Taken, rewritten_graph, search, shared_matcher, shared_patterns
from whet.joint.pricing import part_price, plan_whole
from whet.joint.saturation.engine import saturated_search
from whet.joint.saturation.surrogate import Alone
from whet.joint.search import Found
from whet.joint.superoptimize import Superoptimizer, engines_for
from whet.ops.arithmetic import Add
from whet.ops.conv import Conv
from whet.ops.matmul import MatMul
from whet.schedule.prices import AnalyticPrice
from whet.superopt.apply.rewrite import Part
from whet.superopt.saturate.saturation import Limits
from zoo.reduced import REDUCED

TARGET = PRESETS["x86-64-v4"]
PRICE = AnalyticPrice(TARGET, 2, "real")
HOLDS = backend_of(TARGET).holds
LIMITS = Limits(nodes=300, rounds=4, seconds=60.0)


@cache
def blocks(name: str) -> tuple[Block, ...]:
    graph = optimize(import_model(REDUCED[name]()).graph)
    whole = plan_whole(graph, PRICE, HOLDS)
    assert whole is not None
    return tuple(cut_blocks(whole))


def saturated(block: Block, limits: Limits = LIMITS) -> Found:
    return saturated_search(block, shared_patterns("real"), Alone(PRICE), limits)


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


def test_query_key_and_value_become_one_product() -> None:
    block = blocks("bert_base")[0]
    found = saturated(block)
    assert count(found.best.part, MatMul) == count(block.part, MatMul) - 2
    assert found.best.seconds < 0.95 * found.first.seconds
    assert "merge-matmul" in {r.rule for r in found.best.path}


def test_a_slice_goes_through_a_whole_layer() -> None:
    """The last layer is computed for the one token that is read, and products are merged."""
    found = saturated(blocks("bert_base")[1], Limits(seconds=60.0))
    assert found.best.seconds < 0.7 * found.first.seconds


def image(b: GraphBuilder, name: str, channels: int) -> Input:
    return b.input(name, TensorType((1, channels, 12, 12), f32))


def filters(b: GraphBuilder, seed: int, *shape: int) -> object:
    return b.constant(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))
