"""Places in networks that must be found, and what the search makes of them."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from tests.joint.walks import CLOSE, differ, inputs_for
from whet.build.backend import backend_of
from whet.core.cpu import PRESETS
from whet.frontend.onnx import import_model
from whet.graph.graph import Constant, Graph, Result, Value
from whet.graph.passes import optimize
from whet.joint.kept import rewritten_graph, search, shared_matcher
from whet.joint.moves import hoist_slices
from whet.joint.sums import sum_steps
from whet.joint.superoptimize import Superoptimizer
from whet.schedule.prices import AnalyticPrice
from whet.superopt.apply.axis_rules import merge_rewrites
from whet.superopt.apply.rewrite import Part, Rewrite
from zoo.reduced import REDUCED

TARGET = PRESETS["x86-64-v4"]


@cache
def network(name: str) -> Graph:
    return optimize(import_model(REDUCED[name]()).graph)


def part_of(name: str) -> Part:
    graph = network(name)
    return Part(graph.inputs, graph.outputs)


def shared(rewrite: Rewrite) -> set[object]:
    """Values that all operators of a merge read."""
    nodes = [v.node for v in rewrite.old if isinstance(v, Result)]
    return set.intersection(*(set(n.inputs) for n in nodes))


def kinds(values: tuple[Value, ...]) -> list[tuple[str, ...]]:
    """For every value its operator and those of its inputs that are no constants."""
    return [
        (v.node.op.name, *(i.node.op.name for i in v.node.inputs if isinstance(i, Result)))
        for v in values
        if isinstance(v, Result)
    ]


@pytest.mark.parametrize("name", ["bert_base", "vit_tiny", "llama_prefill"])
def test_queries_keys_and_values_can_be_one_product(name: str) -> None:
    """In every layer, by the law of axes and by a generated rule."""
    merges = [r for r in merge_rewrites(part_of(name)) if r.rule == "merge-matmul"]
    assert sum(len(r.old) == 3 for r in merges) == 2
    rules = [r for r in shared_matcher("real").rewrites(part_of(name)) if "matmul" in r.rule]
    assert sum(len(r.old) == 2 for r in rules) >= 6


def test_parallel_convolutions_can_be_one() -> None:
    merges = [r for r in merge_rewrites(part_of("inception_v3")) if r.rule == "merge-conv"]
    assert sum(len(r.old) == 3 for r in merges) >= 3
    assert any(
        r.rule.startswith("conv-split")
        for r in shared_matcher("real").rewrites(part_of("inception_v3"))
    )


def test_pools_and_single_products_change_places() -> None:
    """Where Inception applies a 1x1 convolution to an average, in every mixed layer."""
    found = {
        r.old for r in shared_matcher("real").rewrites(part_of("inception_v3"))
        if r.rule.startswith("law-avg_pool-conv-") and kinds(r.old) == [("conv", "avg_pool")]
        and kinds(r.new) == [("avg_pool", "conv")]
    }  # fmt: skip
    assert len(found) == 9


@pytest.mark.parametrize(("name", "least"), [("resnet50", 1), ("nasnet_a", 5)])
def test_sums_of_convolutions_with_biases_can_be_one(name: str, least: int) -> None:
    part = part_of(name)
    joined = {
        path[-1].old
        for path, _ in sum_steps(part, shared_matcher("real"))
        if kinds(path[-1].old) == [("add", "conv", "conv")]
        and kinds(path[-1].new) == [("conv", "concat")]
    }
    assert len(joined) >= least


def test_a_joined_sum_computes_the_same() -> None:
    graph = network("resnet50")
    part = part_of("resnet50")
    steps = list(sum_steps(part, shared_matcher("real")))
    assert steps
    for _, made in steps:
        other = Graph(graph.inputs, made.outputs, graph.output_names)
        assert differ(graph, other, inputs_for(graph, np.random.default_rng(0))) <= CLOSE


def test_rules_match_volumes_and_transposed_convolutions() -> None:
    """DCGAN is one chain of transposed convolutions, which nothing stands beside."""
    volumes = [r for r in shared_matcher("real").rewrites(part_of("resnet18_3d"))
               if r.old[0].tensor_type.rank == 5]  # fmt: skip
    assert {"law-conv", "law-add"} <= {r.rule.rsplit("-", 1)[0] for r in volumes}
    assert any(shared_matcher("real").rewrites(part_of("dcgan")))


def test_products_of_all_steps_can_be_one() -> None:
    """Those of the inputs, which need no step before them; never those of the state."""
    found = [
        r for r in merge_rewrites(part_of("nasrnn"))
        if any(isinstance(v, Constant) for v in shared(r))
    ]  # fmt: skip
    assert sum(len(r.old) == 3 for r in found) == 8
    assert all(len(r.old) <= 3 for r in found)


@pytest.mark.parametrize("name", ["bert_base", "vit_tiny"])
def test_the_slice_of_one_token_moves_through_the_last_layer(name: str) -> None:
    hoisted = hoist_slices(part_of(name))
    assert hoisted is not None
    rules = {r.rule for r in hoisted[0]}
    assert {"slice-layer_norm", "slice-matmul", "slice-add", "slice-softmax"} <= rules


@pytest.mark.parametrize("name", ["bert_base", "vit_tiny", "nasrnn"])
def test_the_search_takes_what_pays(name: str) -> None:
    graph = network(name)
    found = search(graph, TARGET, 2, "real", 20.0, price=AnalyticPrice(TARGET, 2, "real"))
    assert found.after < 0.9 * found.before
    made = rewritten_graph(graph, found)
    assert made is not graph
    assert differ(graph, made, inputs_for(graph, np.random.default_rng(0))) <= CLOSE


@pytest.mark.parametrize("name", REDUCED)
def test_no_network_gets_dearer(name: str) -> None:
    graph = network(name)
    price = AnalyticPrice(TARGET, 2, "real")
    found = Superoptimizer(price, backend_of(TARGET).holds, lambda: None, 1.0).run(graph)
    assert found is not None
    assert found.after <= found.before
