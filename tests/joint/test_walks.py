"""Rewrites of networks and random graphs, one after the other: they always compute the same."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.build.random_graphs import random_graph
from tests.joint.walks import CLOSE, differ, inputs_for, walk
from whet.frontend.onnx import import_model
from whet.graph.graph import Graph
from whet.graph.passes import optimize
from whet.joint.kept import shared_matcher
from zoo.reduced import REDUCED


def network(name: str) -> Graph:
    return optimize(import_model(REDUCED[name]()).graph)


@pytest.mark.parametrize("name", REDUCED)
def test_random_rewrites_of_networks(name: str) -> None:
    graph = network(name)
    for seed in range(2):
        made, path = walk(graph, shared_matcher("real"), random.Random(seed), steps=5)
        off = differ(graph, made, inputs_for(graph, np.random.default_rng(seed)))
        assert off <= CLOSE, path


@pytest.mark.parametrize("seed", range(30))
def test_random_rewrites_of_random_graphs(seed: int) -> None:
    graph = optimize(random_graph(np.random.default_rng(seed), 12))
    made, path = walk(graph, shared_matcher("real"), random.Random(seed), steps=8)
    off = differ(graph, made, inputs_for(graph, np.random.default_rng(seed)))
    assert off <= CLOSE, path
